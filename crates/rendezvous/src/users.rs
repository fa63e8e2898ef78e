//! Which users may be at the other end of a socket: everything that compares user ids of processes does it here.
//!
//! # The overflow id
//! The kernel shows every user that a user namespace has no number for as one and the same id, 65534 by default. Such an id says nobody's
//! name: two processes that have it need not be of one user, and a process whose own id it is knows of no other that it is its user's.

use tollfree_os::rustix;

/// Which users may be at the other end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PeerPolicy {
    /// This process's own effective user, and nobody else (root neither).
    #[default]
    SameUser,
    /// These user ids, as this process's user namespace shows them. The overflow id (65534 by default) stands for all whom it doesn't map.
    Users(Vec<u32>),
    /// Everyone who can reach the socket.
    Anyone,
}

impl PeerPolicy {
    /// Whether a user may.
    pub fn allows(&self, uid: u32) -> bool {
        match self {
            PeerPolicy::SameUser => is_same_user(uid, own_user()),
            PeerPolicy::Users(users) => is_listed(uid, users),
            PeerPolicy::Anyone => true,
        }
    }

    /// The policy for messages to people.
    pub fn words(&self) -> &'static str {
        match self {
            PeerPolicy::SameUser if !is_one_user(own_user()) => {
                "its own user only, who is not known in this user namespace"
            }
            PeerPolicy::SameUser => "its own user only",
            PeerPolicy::Users(_) => "only those listed",
            PeerPolicy::Anyone => "everybody",
        }
    }
}

/// This process's effective user id.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether two ids are of one user. The overflow id is of none.
pub fn is_same_user(one: u32, other: u32) -> bool {
    one == other && is_one_user(one)
}

/// Whether a user is listed. Whoever lists the overflow id lists all whom this process's user namespace doesn't map.
pub fn is_listed(uid: u32, users: &[u32]) -> bool {
    users.contains(&uid)
}

/// Whether a user can do with another's processes what it likes: it is the same user, or root.
pub fn is_master_of(user: u32, other: u32) -> bool {
    is_same_user(user, 0) || is_same_user(user, other)
}

/// The number by which the kernel shows every user that a user namespace has no number for, unless told otherwise.
const OVERFLOW_UID: u32 = 65534;

/// Whether a user id stands for one user here, and not for all those that this process's user namespace doesn't map.
fn is_one_user(uid: u32) -> bool {
    let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = told.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW_UID);
    if uid != overflow && uid != OVERFLOW_UID {
        return true;
    }
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_everybody(&map))
}

/// Whether a map of user ids leaves nobody out, as that of the first user namespace does.
fn maps_everybody(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_stands_for_all_users_that_are_not_mapped() {
        assert!(is_one_user(0) && is_one_user(1000));
        assert!(maps_everybody("         0          0 4294967295\n"));
        for map in ["", "0 1000 1", "0 100000 65536", "0 0 1\n1 100000 65536"] {
            assert!(!maps_everybody(map), "{map}");
        }
    }

    #[test]
    fn the_same_user_root_and_those_listed_are_told_from_others() {
        let me = own_user();
        assert!(is_same_user(me, me) && !is_same_user(me, me + 1) && !is_same_user(me, u32::MAX));
        assert!(
            is_master_of(0, 1000)
                && is_master_of(1000, 1000)
                && !is_master_of(1000, 1001)
                && !is_master_of(1000, 0)
        );
        assert!(PeerPolicy::SameUser.allows(me) && !PeerPolicy::SameUser.allows(me + 1));
        let listed = PeerPolicy::Users(vec![5, 7]);
        assert!(listed.allows(5) && listed.allows(7) && !listed.allows(me + 8));
        assert!(PeerPolicy::Anyone.allows(u32::MAX));
    }
}
