//! The part of the side that listens.

use std::sync::Arc;

use tollfree_kill_points::{Point, here};
use tollfree_os::fd::AsFd;
use tollfree_rendezvous::{PeerIdentity, descriptors_are_short, socket};
use tollfree_session::Role;
use zerocopy::IntoBytes;

use crate::admission::QuotaUsage;
use crate::config::{Attacher, Config};
use crate::error::HandshakeError;
use crate::inbox::Inbox;
use crate::mail::{Mail, Step};
use crate::messages::{
    Attached, Own, Peer, attach, check_request, check_user, put_token, redeem, refusal, region_of, watch,
    welcome,
};
use crate::registration::{Purpose, body_len};

/// A handshake of the side that listens, on an accepted socket.
#[derive(Debug)]
pub struct Accepting {
    identity: PeerIdentity,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The message, then what is to follow it.
    Hearing {
        inbox: Inbox,
        has_head: bool,
    },
    /// All of it came, and nothing has been done about it.
    Heard(Inbox),
    Welcoming {
        mail: Mail,
        attached: Box<Attached>,
    },
    /// The first word after the handshake, where both sides give doorbells.
    Giving {
        mail: Mail,
        attached: Box<Attached>,
    },
    Over,
}

impl Accepting {
    /// Looks who has connected.
    ///
    /// # Errors
    /// [`HandshakeError`]; [`refuse`](Accepting::refuse) tells the client.
    pub fn new(socket: impl AsFd, config: &Config) -> Result<Accepting, HandshakeError> {
        let identity = check_user(&socket, config, Role::Server)?;
        if descriptors_are_short(&socket) {
            return Err(HandshakeError::Descriptors);
        }
        let state = State::Hearing { inbox: Inbox::new(), has_head: false };
        Ok(Accepting { identity, state })
    }

    /// Who has connected.
    pub fn identity(&self) -> PeerIdentity {
        self.identity
    }

    /// Whether the client has said all that it has to, so that nobody else may have its place any more.
    pub fn has_heard(&self) -> bool {
        !matches!(self.state, State::Hearing { .. })
    }

    /// Goes on as far as the socket allows; stops once, with [`Step::Pause`] of no time, when all has been heard. With the same configuration and quota usage each
    /// time; not to be called again once it is over.
    ///
    /// # Errors
    /// [`HandshakeError`]; [`refuse`](Accepting::refuse) tells the client.
    pub fn step(
        &mut self,
        socket: impl AsFd,
        config: &Config,
        quota_usage: &Arc<QuotaUsage>,
    ) -> Result<Step<Attached>, HandshakeError> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Hearing { mut inbox, has_head } => {
                    if !inbox.look(&socket)? {
                        self.state = State::Hearing { inbox, has_head };
                        return Ok(Step::Read);
                    }
                    if has_head {
                        self.state = State::Heard(inbox);
                        return Ok(Step::Pause(std::time::Duration::ZERO));
                    }
                    let hello = inbox.hello();
                    check_request(&hello, config)?;
                    let body_len = body_len(hello.kind.get(), hello.body_len.get())
                        .map_err(HandshakeError::Malformed)?;
                    inbox.expect(body_len);
                    self.state = State::Hearing { inbox, has_head: true };
                }
                State::Heard(inbox) => {
                    let (attached, mail) = self.answer(inbox, &socket, config, quota_usage)?;
                    self.state = State::Welcoming { mail, attached: Box::new(attached) };
                }
                State::Welcoming { mut mail, attached } => {
                    if let Some(wait) = mail.step(&socket, attached.own.region.fd())?.pending() {
                        self.state = State::Welcoming { mail, attached };
                        return Ok(wait);
                    }
                    here(Point::HandshakeSent);
                    let Some(mail) = attached.doorbell_mail() else { return Ok(Step::Done(*attached)) };
                    self.state = State::Giving { mail, attached };
                }
                State::Giving { mut mail, attached } => {
                    if let Some(wait) = attached.give_doorbell(&mut mail, &socket)?.pending() {
                        self.state = State::Giving { mail, attached };
                        return Ok(wait);
                    }
                    return Ok(Step::Done(*attached));
                }
                State::Over => return Err(HandshakeError::HungUp),
            }
        }
    }

    fn answer(
        &self,
        mut inbox: Inbox,
        socket: impl AsFd,
        config: &Config,
        quota_usage: &Arc<QuotaUsage>,
    ) -> Result<(Attached, Mail), HandshakeError> {
        let hello = inbox.hello();
        let purpose = Purpose::read(hello.kind.get(), inbox.body()).map_err(HandshakeError::Malformed)?;
        config.check_admitted(Attacher::Local(self.identity), &purpose)?;
        let (_, fd) = inbox.take();
        let peer = Peer { identity: self.identity, pidfd: watch(socket, self.identity)?, shares_clock: true };
        let mut seat = quota_usage.admit(self.identity, peer.pidfd.as_ref())?;
        let answer = redeem(&hello, config)?;
        let (name, role) = match purpose.role() {
            Role::Client => ("tollfree-server", Role::Server),
            Role::Server => ("tollfree-client", Role::Client),
        };
        let own = Own::make(name, config)?;
        seat.made(tollfree_region::ReadMemory::len(&own.region));
        let attached = attach(purpose, role, &hello, region_of(fd)?, own, peer, config)?;
        let mut welcome = welcome(&hello, &attached, config);
        if let Some(answer) = &answer {
            put_token(&mut welcome, answer);
        }
        let mail = Mail::new(welcome.as_bytes().to_vec());
        Ok((attached.answering(answer, seat), mail))
    }

    /// Tells a client of an error that it can do something about, as far as the socket takes it at once, and counts the refusal.
    pub fn refuse(socket: impl AsFd, config: &Config, error: &HandshakeError) {
        // Before the client is told: who was refused finds it counted.
        config.refusals.add();
        // The client may be gone, or not listening; the error itself is what counts.
        let _ = socket::send(socket, refusal(error).as_bytes(), None);
    }
}
