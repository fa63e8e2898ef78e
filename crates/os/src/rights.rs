//! Whether this program may listen to the environment that it was started with.

/// Whether this program has more rights than the user that started it: by its user or group, or as the kernel says (`AT_SECURE`),
/// which also counts a file's capabilities.
pub fn has_more_rights() -> bool {
    use crate::rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid() || says_secure(std::fs::read("/proc/self/auxv"))
}

/// What the vector of pairs says that the kernel gives to each program. Where it may not be read, it is a program with other rights.
fn says_secure(vector: std::io::Result<Vec<u8>>) -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    let is_set =
        |pair: &[u8]| pair[..WORD] == AT_SECURE.to_ne_bytes() && pair[WORD..] != 0_usize.to_ne_bytes();
    match vector {
        Ok(vector) => vector.chunks_exact(2 * WORD).any(is_set),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_its_starters_rights_is_told_from_others() {
        assert!(!has_more_rights(), "a test is started by its own user");
        let vector = |secure: usize| Ok([6, 4096, 23, secure, 0, 0].map(usize::to_ne_bytes).concat());
        assert!(says_secure(vector(1)) && !says_secure(vector(0)));
        assert!(says_secure(Err(std::io::ErrorKind::PermissionDenied.into())));
        assert!(!says_secure(Err(std::io::ErrorKind::NotFound.into())), "no /proc");
    }
}
