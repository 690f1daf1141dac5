//! No alarm is raised that makes the cluster refuse writes.

use holdfast_proto::etcd::rpc;

use super::{Finding, Subject, failed};
use crate::client::answer;

pub(super) async fn check(subject: &Subject) -> Finding {
    let request = rpc::AlarmRequest {
        action: rpc::alarm_request::AlarmAction::Get.into(),
        member_id: 0,
        alarm: rpc::AlarmType::None.into(),
    };
    let raised = answer(subject.client.maintenance().alarm(request))
        .await?
        .alarms;
    match raised.first() {
        None => Ok("none is raised".to_owned()),
        Some(alarm) => failed(format!(
            "{} is raised: restore with --clear-alarms, or disarm it before use",
            alarm.alarm().as_str_name()
        )),
    }
}
