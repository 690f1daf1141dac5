//! What the doctor finds out about the place itself: how it is reached, and what an S3 bucket says
//! of itself.

use bytes::Bytes;
use holdfast_restore::vault::probe::{Answer, ask_bucket};
use holdfast_restore::vault::{ObjectName, RequestChecksum, S3Spec};
use holdfast_restore::{ReadWrite, Vault, VaultSpec};

use super::{CONTENT, Finding, line};

/// Variables that name a proxy, in the order in which they count.
const PROXY_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// How the place is reached; nothing is asked.
pub(super) fn place(spec: &VaultSpec) -> Vec<Finding> {
    let (proxy, ca_file) = match spec {
        VaultSpec::Local { .. } => return Vec::new(),
        VaultSpec::S3(spec) => (&spec.proxy, &spec.ca_file),
        VaultSpec::Gcs(spec) => (&spec.proxy, &spec.ca_file),
        VaultSpec::Azure(spec) => (&spec.proxy, &spec.ca_file),
    };
    let mut findings = Vec::new();
    if let VaultSpec::S3(spec) = spec {
        findings.push(Finding::new("addressing", true, addressing(spec)).good_to_know());
    }
    findings.push(match ca_file {
        None => {
            let detail = "the system's authorities are trusted";
            Finding::new("authorities", true, detail).good_to_know()
        }
        Some(file) => match std::fs::read(file) {
            Ok(pem) => {
                let text = String::from_utf8_lossy(&pem);
                let count = text.matches("-----BEGIN CERTIFICATE-----").count();
                let detail = format!("{count} more of {} are trusted", file.display());
                Finding::new("authorities", count > 0, detail)
            }
            Err(error) => {
                Finding::new("authorities", false, format!("{}: {error}", file.display()))
            }
        },
    });
    let of_environment = || {
        let set = PROXY_VARIABLES.into_iter();
        set.filter(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
            .map(|name| format!("through that of {name}"))
            .next()
    };
    let proxy = match proxy {
        Some(_) => Some("through that of `proxy`".to_owned()),
        None => of_environment(),
    };
    let detail = proxy.unwrap_or_else(|| "none on the way".to_owned());
    findings.push(Finding::new("proxy", true, detail).good_to_know());
    findings
}

fn addressing(spec: &S3Spec) -> String {
    let style = if spec.force_path_style {
        "bucket in the path"
    } else {
        "bucket in the host name"
    };
    let server = spec.endpoint.as_deref().unwrap_or("AWS");
    format!(
        "{style} (`force_path_style: {}`), at {server}",
        spec.force_path_style
    )
}

/// Which checksums the server takes with an upload. Some refuse what they do not know.
pub(super) async fn checksum_modes(
    spec: &VaultSpec,
    mut new_name: impl FnMut() -> ObjectName,
) -> Option<Finding> {
    let VaultSpec::S3(s3) = spec else {
        return None;
    };
    let modes = [
        (RequestChecksum::None, "none"),
        (RequestChecksum::Sha256, "sha256"),
        (RequestChecksum::Crc64nvme, "crc64nvme"),
    ];
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    let mut is_good = false;
    for (mode, word) in modes {
        let spec = S3Spec {
            request_checksum: mode,
            ..s3.clone()
        };
        match try_mode(&VaultSpec::S3(spec), &new_name()).await {
            Ok(()) => {
                taken.push(word);
                is_good |= mode == s3.request_checksum;
            }
            Err(error) => refused.push(format!("{word} ({})", line(&error))),
        }
    }
    let mut detail = format!("taken: {}", taken.join(", "));
    if !refused.is_empty() {
        detail.push_str("; refused: ");
        detail.push_str(&refused.join(", "));
    }
    Some(Finding::new("checksum mode", is_good, detail))
}

async fn try_mode(spec: &VaultSpec, name: &ObjectName) -> Result<(), holdfast_restore::Error> {
    let vault = Vault::<ReadWrite>::open(spec).await?;
    vault.put_new(name, Bytes::from_static(CONTENT)).await?;
    vault.remove(name).await
}

/// What an S3 bucket says of itself.
pub(super) async fn facts(spec: &VaultSpec) -> Vec<Finding> {
    let VaultSpec::S3(s3) = spec else {
        return Vec::new();
    };
    let facts = match ask_bucket(s3).await {
        Ok(facts) => facts,
        Err(error) => return vec![Finding::new("region", false, line(&error)).good_to_know()],
    };
    let told = |name, answer: &Answer| {
        let is_good = !matches!(answer, Answer::No(_));
        Finding::new(name, is_good, answer.to_string()).good_to_know()
    };
    vec![
        told("region", &facts.region),
        told("versioning", &facts.versioning),
        told("object lock", &facts.object_lock),
    ]
}
