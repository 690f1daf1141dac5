//! How messages become bytes and back: tonic's way with buffers of a request's size.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Room that a message is read into at first, in bytes: a request with its key and a value of a
/// kilobyte, twice, because tonic makes room for the message once more when it knows the length.
/// The 8 KiB that tonic has by default cost more to get than most requests to answer.
const DECODE_BYTES: usize = 2304;
/// Room for an answer before its size is known, in bytes; it grows to that size at once.
const ENCODE_BYTES: usize = 64;
/// Bytes of a stream gathered before they are sent on; tonic's default.
const YIELD_BYTES: usize = 32 << 10;

/// Protobuf over gRPC, as [`ProstCodec`].
#[derive(Debug)]
pub struct MessageCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for MessageCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for MessageCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = MessageEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> MessageEncoder<T> {
        MessageEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(DECODE_BYTES, YIELD_BYTES))
    }
}

/// Encodes a message into room of its own size.
#[derive(Debug)]
pub struct MessageEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for MessageEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode(buffer)
            .map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(ENCODE_BYTES, YIELD_BYTES)
    }
}
