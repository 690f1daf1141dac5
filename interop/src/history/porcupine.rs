//! A history as the Go program `checker` reads it: one operation a line.

use super::{Call, History, Outcome};

/// The operations as JSON lines; refused ones never took effect and are left out.
pub fn to_json_lines(history: &History) -> String {
    let mut text = format!("{{\"base\":{}}}\n", history.base);
    for operation in &history.operations {
        if operation.outcome == Outcome::Refused {
            continue;
        }
        let (kind, key, other, value, expected) = match operation.call {
            Call::Get { key } => ("get", key, 0, 0, 0),
            Call::Put { key, value, .. } => ("put", key, 0, value, 0),
            Call::PutBoth { keys, value } => ("both", keys[0], keys[1], value, 0),
            Call::Delete { key } => ("delete", key, 0, 0, 0),
            Call::Swap {
                key,
                expected,
                value,
            } => ("swap", key, 0, value, expected),
        };
        let (is_known, revision, has_written, shown) = match operation.outcome {
            Outcome::Done {
                revision,
                has_written,
                shown,
            } => (true, revision, has_written, shown),
            Outcome::Unknown | Outcome::Refused => (false, 0, false, None),
        };
        let line = serde_json::json!({
            "client": operation.client,
            "start": operation.start,
            "end": operation.end,
            "kind": kind,
            "key": key,
            "other": other,
            "value": value,
            "expected": expected,
            "known": is_known,
            "revision": revision,
            "written": has_written,
            "shownValue": shown.map_or(0, |shown| shown.value),
            "shownModified": shown.map_or(0, |shown| shown.modified),
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}
