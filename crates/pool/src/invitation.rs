//! Pools that only those join who were invited.
//!
//! A coordinator's address is no secret: names of the abstract namespace are listed in `/proc/net/unix`. Who may join such a pool was given an
//! invitation by the process that made the pool, over a connection that nobody else reads. It is good once.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollfree_layout::pool::SECRET_LEN;
use tollfree_os::rustix;
use tollfree_os::rustix::rand::GetRandomFlags;

use crate::error::JoinError;

/// How long an invitation is good.
const LIFE: Duration = Duration::from_secs(30);
/// Invitations at a time; beyond it the oldest is good no more.
const COUNT_MAX: usize = 1024;

/// What one process may join a pool by, once, within 30 s. As text it has 32 hexadecimal digits. Debug output doesn't show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation(pub(crate) [u8; SECRET_LEN]);

/// A text is no invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an invitation has 32 hexadecimal digits")]
pub struct NoInvitation;

impl Invitation {
    /// As it travels.
    pub fn to_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for Invitation {
    type Err = NoInvitation;

    fn from_str(text: &str) -> Result<Invitation, NoInvitation> {
        let is_hex = text.len() == 2 * SECRET_LEN && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(NoInvitation)?;
        Ok(Invitation(number.to_be_bytes()))
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invitation")
    }
}

/// Invites processes to a pool that was made by [`Pool::create_by_invitation`](crate::Pool::create_by_invitation). Clones are the same.
#[derive(Clone, Default)]
pub struct Inviter {
    open: Arc<Mutex<VecDeque<(Invitation, Instant)>>>,
}

impl Inviter {
    /// For one process. Up to 1024 at a time are good; beyond that the oldest is not any more.
    ///
    /// # Errors
    /// [`JoinError::System`] where the kernel has no random bytes.
    pub fn invite(&self) -> Result<Invitation, JoinError> {
        let mut secret = [0; SECRET_LEN];
        random(&mut secret)
            .map_err(|errno| JoinError::System { what: "random bytes", source: errno.into() })?;
        let invitation = Invitation(secret);
        let mut open = self.open.lock();
        if open.len() >= COUNT_MAX {
            open.pop_front();
        }
        open.push_back((invitation.clone(), Instant::now()));
        Ok(invitation)
    }

    /// Whether a newcomer was invited. It was, once.
    pub(crate) fn redeem(&self, secret: &[u8; SECRET_LEN], now: Instant) -> bool {
        let mut open = self.open.lock();
        while open.front().is_some_and(|(_, since)| now.duration_since(*since) > LIFE) {
            open.pop_front();
        }
        let idx = open.iter().position(|(invitation, _)| invitation.0 == *secret);
        idx.and_then(|idx| open.remove(idx)).is_some()
    }
}

impl fmt::Debug for Inviter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inviter").field("open", &self.open.lock().len()).finish()
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), rustix::io::Errno> {
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()))?;
    if count == bytes.len() { Ok(()) } else { Err(rustix::io::Errno::AGAIN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_good_once_and_for_a_time() {
        let (inviter, now) = (Inviter::default(), Instant::now());
        let [first, second] = [(); 2].map(|()| inviter.invite().unwrap());
        assert_ne!(first, second);
        assert!(!inviter.redeem(&[0; SECRET_LEN], now) && !inviter.redeem(&[7; SECRET_LEN], now));
        assert!(inviter.redeem(&second.0, now) && !inviter.redeem(&second.0, now));
        assert!(!inviter.redeem(&first.0, now + LIFE + Duration::from_secs(1)), "it is too old");
        let oldest = inviter.invite().unwrap();
        let newer = inviter.invite().unwrap();
        for _ in 1..COUNT_MAX {
            inviter.invite().unwrap();
        }
        assert!(!inviter.redeem(&oldest.0, now) && inviter.redeem(&newer.0, now));
    }

    #[test]
    fn an_invitation_travels_as_text_and_is_shown_nowhere() {
        let invitation = Inviter::default().invite().unwrap();
        assert_eq!(invitation.to_text().parse(), Ok(invitation.clone()));
        assert_eq!(format!("{invitation:?}"), "Invitation");
        for text in ["", "0", "+0000000000000000000000000000000", "0123456789abcdef0123456789abcdeg"] {
            assert_eq!(text.parse::<Invitation>(), Err(NoInvitation));
        }
    }
}
