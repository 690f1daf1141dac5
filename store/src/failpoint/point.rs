//! The points.

/// Makes the enum, and, where there is somebody to use them, the names.
macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A place in the store.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Point {
            $($(#[$doc])* $point,)*
        }

        #[cfg(all(feature = "failpoints", debug_assertions))]
        impl Point {
            /// The names of all points.
            pub(super) const NAMES: &[&str] = &[$($name,)*];

            /// The name a client of the protocol uses.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    // The log and the messages between members.
    /// A batch of log records is gathered; nothing of it is written.
    RaftBeforeSave = "raftBeforeSave",
    /// It is durable; nobody knows.
    RaftAfterSave = "raftAfterSave",
    /// Those who waited for it know.
    RaftBeforeAdvance = "raftBeforeAdvance",
    /// The batch is written, and not synced. `return` fails the sync.
    WalBeforeSync = "walBeforeSync",
    /// It is synced.
    WalAfterSync = "walAfterSync",
    /// Segments of a purged part of the log are gone.
    RaftAfterWalRelease = "raftAfterWALRelease",
    /// The leader is about to send entries or a heartbeat.
    RaftBeforeLeaderSend = "raftBeforeLeaderSend",
    /// A follower is about to answer its leader.
    RaftBeforeFollowerSend = "raftBeforeFollowerSend",
    /// A heartbeat has arrived. `return` loses it.
    RaftDropHeartbeat = "raftDropHeartbeat",

    // Snapshots between members.
    /// A snapshot of the leader is announced.
    RaftBeforeSaveSnap = "raftBeforeSaveSnap",
    /// All of it is here, and its digest is right.
    RaftAfterSaveSnap = "raftAfterSaveSnap",
    /// Raft has taken it over; the state is the old one.
    RaftBeforeApplySnap = "raftBeforeApplySnap",
    /// The state is the new one; raft does not know.
    RaftAfterApplySnap = "raftAfterApplySnap",
    /// The apply thread is about to read the file. `return` fails it.
    ApplyBeforeOpenSnapshot = "applyBeforeOpenSnapshot",
    /// It has opened it.
    ApplyAfterOpenSnapshot = "applyAfterOpenSnapshot",
    /// The state is durable, so that the log before it can go; raft does not know.
    RaftBeforeWalSaveSnapshot = "raftBeforeWALSaveSnaphot",

    // Applying entries.
    /// A command is about to be applied.
    BeforeApplyOneEntryNormal = "beforeApplyOneEntryNormal",
    /// A change of the membership is about to be applied.
    BeforeApplyOneConfChange = "beforeApplyOneConfChange",
    /// The member is about to make its name and URLs known.
    BeforePublishing = "beforePublishing",

    // The state's transactions.
    /// A transaction is about to begin.
    BeforeStartDbTxn = "beforeStartDBTxn",
    /// It has begun.
    AfterStartDbTxn = "afterStartDBTxn",
    /// The changes of a transaction are made; its applied position is not in it yet.
    CommitBeforePreCommitHook = "commitBeforePreCommitHook",
    /// The applied position is in it.
    CommitAfterPreCommitHook = "commitAfterPreCommitHook",
    /// The state is about to become durable. `return` fails that.
    BeforeCommit = "beforeCommit",
    /// It is durable.
    AfterCommit = "afterCommit",
    /// Changes are committed; readers do not see them.
    BeforeWritebackBuf = "beforeWritebackBuf",
    /// Readers see them.
    AfterWritebackBuf = "afterWritebackBuf",
    /// A row is about to be written.
    BeforeBucketPut = "beforeBucketPut",
    /// The state's file is about to be synced. `return` fails it.
    BeforeSyncDataPages = "beforeSyncDataPages",
    /// The state's file is about to change its size. `return` fails it.
    ResizeFileError = "resizeFileError",
    /// The same. `return` finds the disk full.
    LackOfDiskSpace = "lackOfDiskSpace",

    // Compaction.
    /// A compaction is in the transaction, which is not committed.
    CompactBeforeCommitScheduledCompact = "compactBeforeCommitScheduledCompact",
    /// It is committed; no row is gone.
    CompactAfterCommitScheduledCompact = "compactAfterCommitScheduledCompact",
    /// A step of a compaction has begun its transaction.
    CompactAfterAcquiredBatchTxLock = "compactAfterAcquiredBatchTxLock",
    /// All rows are gone; nothing says so.
    CompactBeforeSetFinishedCompact = "compactBeforeSetFinishedCompact",
    /// It is said, in a transaction that is not committed.
    CompactAfterSetFinishedCompact = "compactAfterSetFinishedCompact",
    /// A step that is not the last is about to be committed.
    CompactBeforeCommitBatch = "compactBeforeCommitBatch",
    /// It is.
    CompactAfterCommitBatch = "compactAfterCommitBatch",

    // Defragmentation.
    /// The new file is about to be made. `return` fails it.
    DefragOpenFileError = "defragOpenFileError",
    /// The new file is empty.
    DefragBeforeCopy = "defragBeforeCopy",
    /// A table is about to be copied. `return` fails it.
    DefragDbFail = "defragdbFail",
    /// The new file is whole and durable; the old one has the name. Also for a received snapshot.
    DefragBeforeRename = "defragBeforeRename",

    // Leases, reads and watches.
    /// A renewal is about to clear the recorded time left.
    BeforeCheckpointInLeaseRenew = "beforeCheckpointInLeaseRenew",
    /// A renewal came from another member.
    BeforeServeHttpLeaseRenew = "beforeServeHTTPLeaseRenew",
    /// The time of a lease is about to be looked up here.
    BeforeLookupWhenLeaseTimeToLive = "beforeLookupWhenLeaseTimeToLive",
    /// The same, for another member.
    BeforeLookupWhenForwardLeaseTimeToLive = "beforeLookupWhenForwardLeaseTimeToLive",
    /// A piece of a streamed range is about to be read.
    BeforeRangeStreamChunk = "beforeRangeStreamChunk",
    /// An answer of a watch is about to be sent.
    BeforeSendWatchResponse = "beforeSendWatchResponse",

    // Bugs planted to see that they are caught: `docs/internals/track-record.md` has their stories.
    /// A linearizable read is answered without a word to a quorum.
    BugReadUnconfirmed = "bugReadUnconfirmed",
    /// A read that arrives while a round is under way is answered by that round.
    BugReadJoinsOldRound = "bugReadJoinsOldRound",
    /// A live event is not given to a watch.
    BugWatchDropsEvent = "bugWatchDropsEvent",
    /// A live event is given to a watch twice.
    BugWatchRepeatsEvent = "bugWatchRepeatsEvent",
    /// A watch of a future revision is given what comes before.
    BugWatchBeforeStart = "bugWatchBeforeStart",
    /// A watch whose place has been compacted goes on behind it.
    BugWatchSkipsCompacted = "bugWatchSkipsCompacted",
    /// Progress is told while events before it are still to come.
    BugWatchProgressAhead = "bugWatchProgressAhead",
    /// When a snapshot replaces the state, watches start over.
    BugWatchBackAfterSnapshot = "bugWatchBackAfterSnapshot",
    /// A put is applied twice.
    BugApplyTwice = "bugApplyTwice",
    /// The applied position becomes durable before what it stands for.
    BugIndexBeforeData = "bugIndexBeforeData",
    /// After a snapshot the applied position is still the old one.
    BugSnapshotKeepsIndex = "bugSnapshotKeepsIndex",
    /// After a snapshot the membership is still the old one.
    BugSnapshotKeepsMembership = "bugSnapshotKeepsMembership",
    /// A defragmentation forgets the last applied entry, not what it did.
    BugDefragLosesIndex = "bugDefragLosesIndex",
    /// A transaction is not checked before it is done, so that it can fail half-way.
    BugTxnUnchecked = "bugTxnUnchecked",
    /// The revision at a start is that of the newest row.
    BugRevisionFromRows = "bugRevisionFromRows",
    /// A compaction removes the deletes made at its very revision.
    BugCompactTombstone = "bugCompactTombstone",
    /// A hash asked for at a revision is that of the newest one.
    BugHashOfNewest = "bugHashOfNewest",
    /// The log acknowledges what it has not synced.
    BugAckBeforeSync = "bugAckBeforeSync",
    /// A vote is given before it is durable.
    BugVoteBeforeSync = "bugVoteBeforeSync",
    /// A torn end of the log is taken for damage.
    BugTornTailFatal = "bugTornTailFatal",
    /// A leader that learns late that it is none any more revokes what its clock says is over.
    BugLeaseExpiryUnconfirmed = "bugLeaseExpiryUnconfirmed",
    /// A new leader does not know how much time a lease had left.
    BugLeaseCheckpointLost = "bugLeaseCheckpointLost",
    /// A lease whose time is over can be renewed.
    BugLeaseRenewedAfterExpiry = "bugLeaseRenewedAfterExpiry",
}
