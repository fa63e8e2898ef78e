//! Numbers of users and groups by their names, as this host has them.

use std::io;

/// The number of a user.
///
/// # Errors
/// What the system says. `Ok(None)`: there is no user of this name. May ask a directory service, and then blocks the thread.
#[cfg(all(target_os = "linux", not(tollfree_http2_only)))]
pub fn user_number(name: &str) -> io::Result<Option<u32>> {
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The number of a group of users.
///
/// # Errors
/// As for [`user_number`].
#[cfg(all(target_os = "linux", not(tollfree_http2_only)))]
pub fn group_number(name: &str) -> io::Result<Option<u32>> {
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// No names are known on this system.
///
/// # Errors
/// Always.
#[cfg(not(all(target_os = "linux", not(tollfree_http2_only))))]
pub fn user_number(_: &str) -> io::Result<Option<u32>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No names are known on this system.
///
/// # Errors
/// Always.
#[cfg(not(all(target_os = "linux", not(tollfree_http2_only))))]
pub fn group_number(_: &str) -> io::Result<Option<u32>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux", not(tollfree_http2_only)))]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_is_made_up() {
        assert_eq!((user_number("root").unwrap(), group_number("root").unwrap()), (Some(0), Some(0)));
        let unknown = "no-such-name-here";
        assert_eq!((user_number(unknown).unwrap(), group_number(unknown).unwrap()), (None, None));
    }
}
