use std::sync::Mutex;

use async_trait::async_trait;
use object_store::list::PaginatedListResult;
use object_store::{ListResult, ObjectMeta};

use super::*;

/// A bucket of keys that answers pages as the library does: one bad name fails its whole page.
#[derive(Default)]
struct Bucket {
    keys: Vec<String>,
    asked: Mutex<usize>,
}

#[async_trait]
impl PaginatedListStore for Bucket {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        *self.asked.lock().unwrap() += 1;
        let offset = options.offset.unwrap_or_default();
        let mut behind: Vec<&String> = self
            .keys
            .iter()
            .filter(|key| key.starts_with(prefix.unwrap()) && **key > offset)
            .collect();
        behind.sort();
        let size = options.max_keys.unwrap();
        let is_cut = behind.len() > size;
        behind.truncate(size);
        let metas: Result<Vec<ObjectMeta>, path::Error> = behind
            .into_iter()
            .map(|key| {
                Ok(ObjectMeta {
                    location: path::Path::parse(key)?,
                    last_modified: chrono::DateTime::UNIX_EPOCH,
                    size: 1,
                    e_tag: None,
                    version: None,
                })
            })
            .collect();
        Ok(PaginatedListResult {
            result: ListResult {
                common_prefixes: Vec::new(),
                objects: metas?,
                extensions: http::Extensions::default(),
            },
            page_token: is_cut.then(|| "more".to_owned()),
        })
    }
}

fn names(listing: &Listing) -> Vec<&str> {
    let names = listing.objects.iter().map(|one| one.name.as_str());
    names.collect()
}

fn odd(listing: &Listing) -> Vec<&str> {
    listing.odd.iter().map(|one| one.object.as_str()).collect()
}

#[tokio::test]
async fn a_bucket_is_listed_around_names_that_are_no_objects() {
    for prefix in ["", "deep/prefix"] {
        let at = |key: &str| match prefix {
            "" => key.to_owned(),
            prefix => format!("{prefix}/{key}"),
        };
        let mut keys: Vec<String> = (0..2500).map(|i| at(&format!("clusters/{i:05}"))).collect();
        keys.extend([
            at("clusters//twice"),
            at("clusters/00700/../up"),
            at("clusters/01999/./here"),
            at("other/outside"),
        ]);
        let bucket = Arc::new(Bucket {
            keys,
            ..Bucket::default()
        });
        let folder = ObjectName::listed("clusters").unwrap();
        let error = Error::Vault {
            action: "list",
            object: "clusters".to_owned(),
            source: Box::new(object_store::Error::InvalidPath {
                source: path::Path::parse("a//b").unwrap_err(),
            }),
        };
        let pages: Arc<dyn PaginatedListStore> = bucket.clone();
        let lister = Lister::Pages(pages);
        let prefix = path::Path::parse(prefix).unwrap();
        let listing = lister.go_on(&prefix, &folder, error).await.unwrap();
        assert_eq!(listing.objects.len(), 2500);
        assert_eq!(listing.objects[2499].name.as_str(), "clusters/02499");
        assert_eq!(
            odd(&listing),
            [
                "clusters//twice",
                "clusters/00700/../up",
                "clusters/01999/./here"
            ]
        );
        assert!(*bucket.asked.lock().unwrap() < 120, "in few requests");
    }
}

#[tokio::test]
async fn what_the_store_itself_fails_at_is_no_odd_name() {
    let bucket: Arc<dyn PaginatedListStore> = Arc::new(Bucket::default());
    let lister = Lister::Pages(bucket);
    let folder = ObjectName::listed("clusters").unwrap();
    let error = Error::malformed("the answer", "cut short");
    let prefix = path::Path::default();
    let listed = lister.go_on(&prefix, &folder, error).await;
    assert!(matches!(listed, Err(Error::Malformed { .. })));
}

#[test]
fn a_folder_is_walked_around_loops_and_odd_names() {
    use std::os::unix::ffi::OsStrExt as _;
    let root = tempfile::tempdir().unwrap();
    let parts = root.path().join("clusters/prod/parts");
    fs::create_dir_all(parts.join("a")).unwrap();
    for name in ["a/000000", "a/000001", "a/upload#12"] {
        fs::write(parts.join(name), "x").unwrap();
    }
    fs::write(parts.join("a/line\nend"), "x").unwrap();
    fs::write(parts.join(std::ffi::OsStr::from_bytes(b"a/\xff")), "x").unwrap();
    std::os::unix::fs::symlink("..", parts.join("a/up")).unwrap();
    std::os::unix::fs::symlink("self", parts.join("self")).unwrap();
    std::os::unix::fs::symlink("nowhere", parts.join("gone")).unwrap();
    std::os::unix::fs::symlink("a", parts.join("b")).unwrap();
    let folder = ObjectName::listed("clusters/prod/parts").unwrap();
    let mut listing = walk(root.path(), &folder).unwrap();
    listing.objects.sort_by(|a, b| a.name.cmp(&b.name));
    let name = |rest: &str| format!("clusters/prod/parts/{rest}");
    // A link to another folder is followed, as it always was.
    let wanted = ["a/000000", "a/000001", "b/000000", "b/000001"].map(name);
    assert_eq!(names(&listing), wanted);
    let mut found = odd(&listing);
    found.sort_unstable();
    let wanted = [
        "a/line\\nend",
        "a/up",
        "a/\u{fffd}",
        "b/line\\nend",
        "b/up",
        "b/\u{fffd}",
        "self",
    ]
    .map(name);
    assert_eq!(found, wanted);
    let nothing = walk(root.path(), &ObjectName::listed("clusters/none").unwrap());
    assert!(nothing.unwrap().objects.is_empty());
}
