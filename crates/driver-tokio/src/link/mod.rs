//! The byte-stream engine: a session whose two processes share no memory, over TCP with TLS.
//!
//! Each side has its own region, and a mirror of the peer's; [`window`] keeps them alike. The session, and all that waits,
//! polls and rings, is that of one host: ringing the peer means to send what was published, and hearing it means to take
//! what was received. The specification is `spec/device.md`.
//!
//! # Trust
//! Both sides have shown certificates before the first message. What comes afterwards is checked as from any peer. Nothing is
//! buffered here but one message, and what TLS has not sent yet: messages are made from the ring only when the socket takes more.
//!
//! # Crash
//! A connection that is lost, or silent for [`Config::silence`](crate::Config::silence), is a reset: the session ends as when
//! the peer's process has died.

pub(crate) mod address;
pub(crate) mod certificates;
pub(crate) mod feed;
pub(crate) mod listener;
mod meet;
mod places;
mod window;
mod wire;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio_rustls::rustls::Connection;
use tollfree_layout::RingPos;
use tollfree_os::fd::AsFd;
use tollfree_region::Region;
use tollfree_ring::Geometry;
use tollfree_session::Violation;

use crate::driver::BEATS_OF_SILENCE;
use crate::remote::RemoteIdentity;
pub(crate) use meet::dial;
use places::Place;
use tollfree_host::SocketEvent;
use window::Window;
use wire::Wire;

/// Received at once.
const RECEIVE_LEN: usize = 16 * 1024;
/// Received before others have their turn: what a ring holds, a few times.
const HEARD_LEN_MAX: usize = 128 * 1024;
/// What a handshake over a stream came to.
pub(crate) struct Seed {
    tls: Connection,
    mirror: Region,
    ring: Geometry,
    /// At a listener.
    pub(crate) remote: Option<RemoteIdentity>,
    place: Option<Place>,
}

/// The stream of a session.
pub(crate) struct Link {
    tls: Connection,
    window: Window<Region>,
    out: BytesMut,
    /// For what is received.
    buffer: Box<[u8]>,
    /// The socket takes no more for now; its runtime tells when it does.
    is_blocked: bool,
    /// Nothing goes out any more.
    is_lost: bool,
    /// There is more to be heard, now that others had their turn.
    owes: bool,
    /// Since the last beat.
    has_heard: bool,
    has_said: bool,
    silent_beats: u32,
    _place: Option<Place>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("is_blocked", &self.is_blocked).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(seed: Seed, own: Arc<Region>, own_ring: Geometry) -> Link {
        Link {
            tls: seed.tls,
            window: Window::new(own, own_ring, seed.mirror, seed.ring),
            out: BytesMut::new(),
            buffer: vec![0; RECEIVE_LEN].into(),
            is_blocked: false,
            is_lost: false,
            // What came together with the handshake's last message.
            owes: true,
            has_heard: true,
            has_said: false,
            silent_beats: 0,
            _place: seed.place,
        }
    }

    /// Sends what was published, as far as the socket takes it. What fails is noticed where the socket is heard.
    pub(crate) fn flush(&mut self, socket: impl AsFd, published: RingPos) {
        self.window.rearm();
        let mut wire = Wire(socket.as_fd());
        while !self.is_blocked && !self.is_lost {
            if self.tls.wants_write() {
                match self.tls.write_tls(&mut wire) {
                    Ok(len) => self.has_said |= len > 0,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_blocked = true,
                    Err(_) => self.is_lost = true,
                }
                continue;
            }
            // What TLS didn't take yet of the last message goes before the next.
            if self.out.is_empty() && !self.window.say(published, &mut self.out) {
                return;
            }
            match self.tls.writer().write(&self.out) {
                Ok(len) => self.out.advance(len),
                Err(_) => self.is_lost = true,
            }
            if self.out.is_empty() {
                // Its memory from the beginning.
                self.out.clear();
            }
        }
    }

    /// The socket takes more.
    pub(crate) fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Whether [`hear`](Self::hear) is to be called again without any event.
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// Takes what has come, up to a bound.
    ///
    /// # Errors
    /// What the peer has done that no peer does.
    pub(crate) fn hear(&mut self, socket: impl AsFd) -> Result<SocketEvent, Violation> {
        let had = std::mem::take(&mut self.owes) && self.drain()?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let heard = self.hear_into(&mut buffer, &mut Wire(socket.as_fd()));
        self.buffer = buffer;
        Ok(match heard? {
            SocketEvent::Silent if had => SocketEvent::Rang,
            heard => heard,
        })
    }

    fn hear_into(&mut self, buffer: &mut [u8], wire: &mut Wire<'_>) -> Result<SocketEvent, Violation> {
        let mut heard_len = 0;
        loop {
            let len = match wire.read(buffer) {
                Ok(0) => return Ok(SocketEvent::Dead),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock && heard_len == 0 => {
                    return Ok(SocketEvent::Silent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(SocketEvent::Rang),
                Err(_) => return Ok(SocketEvent::Dead),
            };
            let mut received = &buffer[..len];
            self.has_heard = true;
            heard_len += len;
            while !received.is_empty() {
                let taken = self.tls.read_tls(&mut received);
                let state = self.tls.process_new_packets();
                let (Ok(1..), Ok(state)) = (taken, state) else {
                    return Err(Violation::Socket("a TLS record that is none, or not of this connection"));
                };
                self.drain()?;
                if state.peer_has_closed() {
                    return Ok(SocketEvent::Dead);
                }
            }
            if len < buffer.len() {
                // The next byte is an event of its own.
                return Ok(SocketEvent::Rang);
            }
            if heard_len >= HEARD_LEN_MAX {
                self.owes = true;
                return Ok(SocketEvent::Rang);
            }
        }
    }

    /// Takes what TLS has opened. Whether that was anything.
    fn drain(&mut self) -> Result<bool, Violation> {
        let mut any = false;
        let mut reader = self.tls.reader();
        // Fails while there is nothing, and at the end.
        while let Ok(bytes) = reader.fill_buf()
            && !bytes.is_empty()
        {
            let len = bytes.len();
            self.window.take(bytes)?;
            reader.consume(len);
            any = true;
        }
        Ok(any)
    }

    /// A part of the longest silence has passed: says that this side is there, if nothing else was said. `false`: the peer has
    /// been silent for too long.
    pub(crate) fn beat(&mut self, socket: impl AsFd, published: RingPos) -> bool {
        self.silent_beats = if std::mem::take(&mut self.has_heard) { 0 } else { self.silent_beats + 1 };
        if self.silent_beats >= BEATS_OF_SILENCE {
            return false;
        }
        if !self.has_said && self.out.is_empty() && !self.tls.wants_write() {
            self.window.beat(&mut self.out);
        }
        self.window.counted();
        self.flush(socket, published);
        // A beat is no reason to leave out the next.
        self.has_said = false;
        true
    }

    /// Says that nothing follows.
    pub(crate) fn close(&mut self, socket: impl AsFd, published: RingPos) {
        self.flush(&socket, published);
        if !self.is_blocked && !self.is_lost {
            self.tls.send_close_notify();
            let _ = self.tls.write_tls(&mut Wire(socket.as_fd()));
        }
    }
}
