//! The part of the side that connects.

use std::io;

use tollfree_kill_points::{Point, here};
use tollfree_layout::handshake::feature;
use tollfree_os::fd::AsFd;
use tollfree_rendezvous::socket;
use tollfree_session::Role;
use zerocopy::IntoBytes;

use crate::config::Config;
use crate::error::HandshakeError;
use crate::inbox::Inbox;
use crate::mail::{Mail, Step};
use crate::messages::{
    Attached, Own, Peer, attach, check_answer, check_user, offer, put_token, region_of, token_of, watch,
};
use crate::registration::Purpose;
use crate::tokens::Ticket;

/// A handshake of the side that connects, on a connected socket.
#[derive(Debug)]
pub struct Connecting {
    purpose: Purpose,
    /// A ticket that is presented has to be answered.
    ticket: Option<Ticket>,
    state: State,
}

#[derive(Debug)]
enum State {
    Sending {
        mail: Mail,
        own: Own,
        peer: Peer,
    },
    Receiving {
        inbox: Inbox,
        own: Own,
        peer: Peer,
        unsent: Option<HandshakeError>,
    },
    /// The first word after the handshake, where both sides give doorbells.
    Giving {
        mail: Mail,
        attached: Box<Attached>,
    },
    Over,
}

impl Connecting {
    /// Looks who listens, and makes this side's region.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn new(
        socket: impl AsFd,
        config: &Config,
        purpose: Purpose,
        ticket: Option<Ticket>,
    ) -> Result<Connecting, HandshakeError> {
        let (role, body) = (purpose.role(), purpose.body());
        let identity = check_user(&socket, config, role)?;
        let peer = Peer { identity, pidfd: watch(&socket, identity)?, shares_clock: true };
        let own =
            Own::make(if role == Role::Client { "tollfree-client" } else { "tollfree-server" }, config)?;
        let mut hello = offer(purpose.kind(), &purpose, role, config, &own);
        hello.body_len = (body.len() as u32).into();
        if let Some(ticket) = &ticket {
            put_token(&mut hello, &ticket.token);
            if let Some(ends) = ticket.ends {
                ends.put(&mut hello);
            }
            // A server that knows no tokens did not give this.
            hello.required = feature::UPGRADE.into();
        }
        let mail = Mail::new([hello.as_bytes(), &body].concat());
        Ok(Connecting { purpose, ticket, state: State::Sending { mail, own, peer } })
    }

    /// Goes on as far as the socket allows, with the same configuration each time. Not to be called again once it is over.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn step(&mut self, socket: impl AsFd, config: &Config) -> Result<Step<Attached>, HandshakeError> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Sending { mut mail, own, peer } => {
                    let sent = mail.step(&socket, own.region.fd());
                    let unsent = match sent {
                        Ok(step) => {
                            if let Some(wait) = step.pending() {
                                self.state = State::Sending { mail, own, peer };
                                return Ok(wait);
                            }
                            None
                        }
                        Err(error) if socket::is_stall(&error) => return Err(error.into()),
                        // A server that refuses at first sight may have hung up by now, and its words lie in the socket.
                        Err(error) => Some(error.into()),
                    };
                    here(Point::HandshakeSent);
                    self.state = State::Receiving { inbox: Inbox::new(), own, peer, unsent };
                }
                State::Receiving { mut inbox, own, peer, unsent } => {
                    match (inbox.look(&socket), unsent) {
                        (Ok(true), _) => {}
                        (Ok(false), unsent) => {
                            self.state = State::Receiving { inbox, own, peer, unsent };
                            return Ok(Step::Read);
                        }
                        (Err(HandshakeError::HungUp), Some(error)) => return Err(error),
                        (Err(error), _) => return Err(error),
                    }
                    let attached = self.welcomed(inbox, own, peer, config)?;
                    let Some(mail) = attached.doorbell_mail() else { return Ok(Step::Done(attached)) };
                    self.state = State::Giving { mail, attached: Box::new(attached) };
                }
                State::Giving { mut mail, attached } => {
                    match attached.give_doorbell(&mut mail, &socket) {
                        Ok(step) => {
                            if let Some(wait) = step.pending() {
                                self.state = State::Giving { mail, attached };
                                return Ok(wait);
                            }
                        }
                        // A session that the server has ended by now is one nevertheless. What the server said before is in its ring: that it takes no
                        // more calls, for example, which is how a session ends whose greatest age is short.
                        Err(error) if has_hung_up(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                    return Ok(Step::Done(*attached));
                }
                State::Over => return Err(HandshakeError::HungUp),
            }
        }
    }

    /// The server has answered.
    fn welcomed(
        &self,
        mut inbox: Inbox,
        own: Own,
        peer: Peer,
        config: &Config,
    ) -> Result<Attached, HandshakeError> {
        let (answer, fd) = inbox.take();
        check_answer(&answer)?;
        let answered = self.ticket.as_ref().and_then(|_| token_of(&answer));
        if self.ticket.is_some() && answered.is_none() {
            return Err(HandshakeError::NoAnswer);
        }
        let role = self.purpose.role();
        let attached = attach(self.purpose.clone(), role, &answer, region_of(fd)?, own, peer, config)?;
        Ok(attached.answered(answered))
    }
}

/// Whether a peer has closed its end.
fn has_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
