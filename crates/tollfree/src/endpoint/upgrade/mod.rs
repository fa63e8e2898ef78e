//! Moving over by itself: a channel to `http://host:port` whose server is on the same host finds out that there is a
//! local socket, and makes its calls there.
//!
//! ```text
//! client                                                server, over TCP      the same server, at its socket
//!   POST /tollfree.Upgrade/Ask ──────────────────────────►
//!     ◄──── tollfree-offer, -file, -token ─────────────────
//!   does the socket lie in a directory of mine? is it the file that
//!   was meant?
//!   HELLO with the token, and the ends of the connection ─────────────────────────────►
//!                                    is it the connection by which the token went out?
//!     ◄────────────────────────────────────────────────────── WELCOME with an answer ────
//!   POST /tollfree.Upgrade/Confirm, tollfree-answer ──────►
//!     ◄──── tollfree-token: the one that was answered so ───
//!   new calls go to the session
//! ```
//! Section 23 of `spec/wire.md` says it for other languages, `docs/adr/0022-upgrade-from-tcp.md` why it is so.

mod mover;

use std::ffi::OsString;
use std::path::PathBuf;

use http::HeaderName;

use crate::endpoint::error::ChannelError;

pub(crate) use mover::{Mover, keep};

/// Directories for channels that are told nothing, separated as in `PATH`.
const VARIABLE: &str = "TOLLFREE_UPGRADE_DIRECTORY";

pub(crate) const ASK: &str = "/tollfree.Upgrade/Ask";
pub(crate) const CONFIRM: &str = "/tollfree.Upgrade/Confirm";
/// The address of the socket.
pub(crate) const OFFER: HeaderName = HeaderName::from_static("tollfree-offer");
/// Which file the socket is.
pub(crate) const FILE: HeaderName = HeaderName::from_static("tollfree-file");
/// What the client is to present at the socket.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("tollfree-token");
/// What the client was answered there.
pub(crate) const ANSWER: HeaderName = HeaderName::from_static("tollfree-answer");

/// Whether calls of a channel to `http://host:port` move over to shared memory, where the server is on the same host and
/// offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upgrade {
    /// They never do.
    Off,
    /// New calls move over when that is possible, and back when the session ends. Those under way stay where they are.
    Preferred,
    /// Calls go over shared memory or fail with UNAVAILABLE, which says why. TCP serves only for finding the way.
    Required,
}

/// What a channel was told about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpgradeSettings {
    pub(crate) policy: Option<Upgrade>,
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) through_proxies: bool,
}

/// What is to be done about it.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Nothing, for this reason.
    Stay(&'static str),
    /// Moving over, to sockets in these directories.
    Move { required: bool, directories: Vec<PathBuf>, through_proxies: bool },
}

impl UpgradeSettings {
    /// # Errors
    /// [`ChannelError::Upgrade`] for settings that can't come to anything.
    pub(crate) fn plan(self) -> Result<Plan, ChannelError> {
        // A program with more rights than the user that starts it does not take that user's word for where servers are.
        self.plan_with(|| variable(tollfree_os::has_more_rights(), std::env::var_os(VARIABLE)))
    }

    fn plan_with(self, variable: impl FnOnce() -> OsString) -> Result<Plan, ChannelError> {
        if self.policy == Some(Upgrade::Off) {
            return Ok(Plan::Stay("the channel is told to stay on TCP"));
        }
        let required = self.policy == Some(Upgrade::Required);
        match tollfree_os::shared_memory() {
            Err(why) if required => return Err(ChannelError::Upgrade(format!("it is required, but {why}"))),
            Err(_) => return Ok(Plan::Stay("this program was built with HTTP/2 alone")),
            Ok(()) => {}
        }
        let mut directories = self.directories;
        if directories.is_empty() {
            directories
                .extend(std::env::split_paths(&variable()).filter(|path| !path.as_os_str().is_empty()));
        }
        if let Some(relative) = directories.iter().find(|directory| !directory.is_absolute()) {
            let reason =
                format!("{:?}, where offered sockets may lie, is not an absolute path", relative.display());
            return Err(ChannelError::Upgrade(reason));
        }
        match (directories.is_empty(), required) {
            (true, false) => {
                Ok(Plan::Stay("the channel knows no directory in which a server's socket may lie"))
            }
            (true, true) => Err(ChannelError::Upgrade(format!(
                "it is required, but no directory is given in which offered sockets may lie: \
                 call ChannelBuilder::upgrade_directory, or set {VARIABLE}"
            ))),
            (false, _) => Ok(Plan::Move { required, directories, through_proxies: self.through_proxies }),
        }
    }
}

/// What the variable says, to a program that may listen to it.
fn variable(is_secure: bool, value: Option<OsString>) -> OsString {
    match value {
        Some(value) if is_secure => {
            tracing::warn!(?value, "{VARIABLE} is ignored: this program has more rights than its starter");
            OsString::new()
        }
        value => value.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_more_rights_than_its_starter_does_not_listen_to_him() {
        let set = || Some(OsString::from("/run/a"));
        assert_eq!(variable(false, set()), "/run/a");
        assert_eq!(variable(true, set()), "");
        assert_eq!(variable(false, None), "");
    }

    fn plan(policy: Option<Upgrade>, given: &[&str], variable: &str) -> Result<Plan, String> {
        let directories = given.iter().map(PathBuf::from).collect();
        let settings = UpgradeSettings { policy, directories, through_proxies: false };
        settings.plan_with(|| variable.into()).map_err(|error| error.to_string())
    }

    fn moves(plan: Result<Plan, String>) -> (bool, Vec<String>) {
        match plan {
            Ok(Plan::Move { required, directories, .. }) => {
                (required, directories.iter().map(|path| path.display().to_string()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_is_what_switches_it_on() {
        assert!(matches!(plan(None, &[], ""), Ok(Plan::Stay(_))));
        assert!(matches!(plan(Some(Upgrade::Preferred), &[], ""), Ok(Plan::Stay(_))));
        assert_eq!(moves(plan(None, &["/run/a"], "/run/b")), (false, vec!["/run/a".into()]));
        assert_eq!(moves(plan(None, &[], "/run/b::/run/c")), (false, vec!["/run/b".into(), "/run/c".into()]));
        assert_eq!(moves(plan(Some(Upgrade::Required), &[], "/run/b")), (true, vec!["/run/b".into()]));
        assert!(matches!(plan(Some(Upgrade::Off), &["/run/a"], "/run/b"), Ok(Plan::Stay(_))));
    }

    #[test]
    fn what_can_come_to_nothing_is_refused() {
        let error = plan(Some(Upgrade::Required), &[], "").unwrap_err();
        assert!(error.contains("upgrade_directory") && error.contains(VARIABLE), "{error}");
        for (given, variable) in [(&["run"][..], ""), (&[][..], "run:/run")] {
            let error = plan(None, given, variable).unwrap_err();
            assert!(error.contains("\"run\"") && error.contains("absolute"), "{error}");
        }
    }
}
