//! Every table of the store file.

use redb::TableDefinition;

/// Keys and values are bytes; what they mean is etcd's.
pub(crate) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// The tables. All but `Own` are etcd's buckets, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Alarm,
    Auth,
    AuthRoles,
    AuthUsers,
    Cluster,
    Key,
    Lease,
    Members,
    MembersRemoved,
    Meta,
    /// What no snapshot carries: format, applied position, tallies, membership.
    Own,
}

impl Table {
    /// The tables a snapshot carries, in the order of their names.
    pub(crate) const ETCD: [Self; 10] = [
        Self::Alarm,
        Self::Auth,
        Self::AuthRoles,
        Self::AuthUsers,
        Self::Cluster,
        Self::Key,
        Self::Lease,
        Self::Members,
        Self::MembersRemoved,
        Self::Meta,
    ];

    /// How many tables are tallied: etcd's.
    pub(crate) const TALLIED: usize = Self::ETCD.len();

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Auth => "auth",
            Self::AuthRoles => "authRoles",
            Self::AuthUsers => "authUsers",
            Self::Cluster => "cluster",
            Self::Key => "key",
            Self::Lease => "lease",
            Self::Members => "members",
            Self::MembersRemoved => "members_removed",
            Self::Meta => "meta",
            Self::Own => "holdfast",
        }
    }

    /// Place among the tallied tables; `None` for our own.
    pub(crate) fn tally_index(self) -> Option<usize> {
        Self::ETCD.iter().position(|&table| table == self)
    }

    pub(crate) const fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}
