//! Sessions and listeners of a loop.

use std::ffi::c_int;
use std::sync::Arc;

use tollfree_driver_loop::{Address, ListenerId, Registration, SessionId};
use tollfree_layout::errors;

use crate::error::{Failure, run};
use crate::loops::Loop;
use crate::pointers::{self, Bytes, Growing};

/// A session: a connection to one process. `{0}` is none. No two sessions of a loop have the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    id: u64,
}

/// A place at which clients arrive. `{0}` is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    id: u64,
}

/// Who is at the other end of a session, by the kernel's word, at the time of connecting.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// `sizeof(tollfree_peer)`, set by the program.
    size: usize,
    /// Process id in this process's pid namespace, 0 where it has none there. For people to read: it may be another's by now.
    pid: i32,
    /// Effective user id.
    uid: u32,
    /// Effective group id.
    gid: u32,
    /// 0.
    reserved: u32,
}

// SAFETY: numbers. `size` is the first.
unsafe impl Growing for Peer {
    const LEN_MIN: usize = size_of::<Peer>();
}

impl Session {
    pub(crate) const NONE: Session = Session { id: 0 };

    pub(crate) fn of(session: SessionId) -> Session {
        Session { id: session.to_bits() }
    }

    pub(crate) fn id(self) -> SessionId {
        SessionId::from_bits(self.id)
    }
}

impl Listener {
    pub(crate) const NONE: Listener = Listener { id: 0 };

    pub(crate) fn of(listener: ListenerId) -> Listener {
        Listener { id: u64::from(listener.to_bits()) + 1 }
    }

    fn id(self) -> Result<ListenerId, Failure> {
        let number = self.id.checked_sub(1).and_then(|number| u32::try_from(number).ok());
        number.map(ListenerId::from_bits).ok_or_else(|| unknown("listener"))
    }
}

pub(crate) fn unknown(what: &str) -> Failure {
    Failure::new(errors::USE_SESSION, format!("this {what} is over, or is no {what} of this loop"))
}

pub(crate) fn address(text: Bytes<'_>) -> Result<Address, Failure> {
    let text = text.text("the address")?;
    text.parse()
        .map_err(|error: tollfree_driver_loop::AddressError| Failure::new(error.number(), error.to_string()))
}

/// Begins to connect to the server at an address, `shm:///path` or `shm-abstract:name`. `TOLLFREE_EVENT_CONNECTED` or
/// `TOLLFREE_EVENT_NOT_CONNECTED` follows, within the handshake's time.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_connect(of: Loop, to: Bytes<'_>, session: Option<&mut Session>) -> c_int {
    run(|| {
        let session = session.ok_or_else(|| Failure::null("the session"))?;
        let to = address(to)?;
        of.with(|kept| {
            *session = Session::of(kept.events.connect(&to)?);
            Ok(())
        })
    })
}

/// Begins to attach to the gateway at an address, in a group of the gateway's config, as a server of services by their full names:
/// the calls of its clients come in this session. `process` is any number that the connections of one server have in common, and no
/// other server; `nth` counts these connections from 0. Events as of `tollfree_connect`.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_attach(
    of: Loop,
    to: Bytes<'_>,
    group: Bytes<'_>,
    services: *const Bytes<'_>,
    service_count: usize,
    process: Option<&[u8; 16]>,
    nth: u32,
    session: Option<&mut Session>,
) -> c_int {
    run(|| {
        let (Some(session), Some(process)) = (session, process) else {
            return Err(Failure::null("the session or the process"));
        };
        let to = address(to)?;
        // SAFETY: the header asks for `service_count` names there; null and impossible lengths are refused (`pointers::tests`).
        let services = unsafe { pointers::list(services, service_count) }?;
        let services: Result<Arc<[String]>, Failure> =
            services.iter().map(|name| Ok(name.text("a service")?.to_owned())).collect();
        let (process, group, services) = (*process, group.text("the group")?.into(), services?);
        let registration = Registration { process, backend_connection: nth, group, services };
        of.with(|kept| {
            *session = Session::of(kept.events.attach(&to, registration)?);
            Ok(())
        })
    })
}

/// Listens at an address, `shm:///path` or `shm-abstract:name`: `TOLLFREE_EVENT_ACCEPTED` follows for each client.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_listen(of: Loop, at: Bytes<'_>, listener: Option<&mut Listener>) -> c_int {
    run(|| {
        let listener = listener.ok_or_else(|| Failure::null("the listener"))?;
        let at = address(at)?;
        of.with(|kept| {
            *listener = Listener::of(kept.events.listen(&at)?);
            Ok(())
        })
    })
}

/// Takes no new clients, and removes the socket. Sessions go on.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_unlisten(of: Loop, listener: Listener) -> c_int {
    run(|| {
        of.with(|kept| match kept.events.unlisten(listener.id()?) {
            true => Ok(()),
            false => Err(unknown("listener")),
        })
    })
}

/// Who is at the other end of a session.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_session_peer(of: Loop, session: Session, peer: *mut Peer) -> c_int {
    run(|| {
        let found = of.with(|kept| kept.events.peer(session.id()).ok_or_else(|| unknown("session")))?;
        let value = Peer { size: 0, pid: found.pid, uid: found.uid, gid: found.gid, reserved: 0 };
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(peer, &value) }
    })
}

/// How many calls are under way in a session, those included that wait for their turn.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_session_call_count(
    of: Loop,
    session: Session,
    count: Option<&mut usize>,
) -> c_int {
    run(|| {
        let count = count.ok_or_else(|| Failure::null("the count"))?;
        of.with(|kept| {
            kept.events.peer(session.id()).ok_or_else(|| unknown("session"))?;
            *count = kept.events.call_count(session.id());
            Ok(())
        })
    })
}

/// Takes no more calls in a session (server): the client learns which it may make elsewhere. Calls under way go on.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_session_drain(of: Loop, session: Session) -> c_int {
    run(|| {
        of.with(|kept| {
            kept.events.peer(session.id()).ok_or_else(|| unknown("session"))?;
            kept.events.drain(session.id());
            Ok(())
        })
    })
}

/// Ends a session with all of its calls: `TOLLFREE_EVENT_ENDED` follows for each, then `TOLLFREE_EVENT_CLOSED`.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_session_close(of: Loop, session: Session) -> c_int {
    run(|| {
        of.with(|kept| {
            kept.events.peer(session.id()).ok_or_else(|| unknown("session"))?;
            kept.events.close(session.id());
            Ok(())
        })
    })
}
