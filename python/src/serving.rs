//! Loops whose events Python takes: those of servers, and of asyncio's channels.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use tollfree_driver_blocking::{
    Address, CallId, CallMailbox, CallStart, CallTerms, ChannelId, Event, Kept, ListenerId, Message,
    Registration, SessionId, Status, Told,
};
use tollfree_os::clock::now_ns;

use crate::call::{Sender, duration};
use crate::channels;
use crate::client::{Retry, config};
use crate::events::{kind, of_call, of_loop};
use crate::pieces::{Outgoing, received};
use crate::pool::Pool;
use crate::sharing::{Interpreter, Sharing};

/// Events that are taken at once.
const EVENT_COUNT: usize = 64;

/// A loop with listeners, sessions and channels, whose events Python takes: by one thread at a time. What else is done with it, any thread does,
/// if it is `by_threads`; else the same thread, which takes the events of what it did before it sleeps.
#[pyclass(frozen)]
pub(crate) struct Loop {
    sharing: Arc<Sharing>,
    fd: i32,
}

#[pymethods]
impl Loop {
    /// `by_threads`: what comes for a server's calls is kept for threads that wait for it; else it comes as events, too.
    #[new]
    #[pyo3(signature = (by_threads, agent = None, receive_len_max = None, metadata_len_max = None, call_count_max = None, pool = None))]
    fn new(
        by_threads: bool,
        agent: Option<String>,
        receive_len_max: Option<usize>,
        metadata_len_max: Option<u32>,
        call_count_max: Option<u32>,
        pool: Option<&Bound<'_, Pool>>,
    ) -> PyResult<Loop> {
        let config = config(agent, receive_len_max, metadata_len_max, call_count_max, pool);
        let sharing = Sharing::new(config, if by_threads { Told::Calls } else { Told::Events })?;
        let fd = sharing.raw_fd();
        Ok(Loop { sharing, fd })
    }

    /// Listens at an address: its listener's number.
    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<u32> {
        let address: Address = parsed(address)?;
        self.sharing.check()?;
        let listener = self.sharing.ask(py, move |leader| leader.events().listen(&address))?;
        listener.map(ListenerId::to_bits).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Takes no new clients.
    fn unlisten(&self, listener: u32) -> PyResult<()> {
        self.sharing.check()?;
        self.sharing.run(move |leader| {
            leader.events().unlisten(ListenerId::from_bits(listener));
        });
        Ok(())
    }

    /// Begins to attach to a gateway: the session's number. ATTACHED or NOT_ATTACHED follows.
    fn attach(
        &self,
        py: Python<'_>,
        address: &str,
        process: [u8; 16],
        connection: u32,
        group: &str,
        services: Vec<String>,
    ) -> PyResult<u64> {
        let address: Address = parsed(address)?;
        self.sharing.check()?;
        let (group, services) = (group.into(), services.into());
        let registration = Registration { process, backend_connection: connection, group, services };
        let session = self.sharing.ask(py, move |leader| leader.events().attach(&address, registration))?;
        session.map(SessionId::to_bits).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Takes no more calls in a session.
    fn drain(&self, session: u64) -> PyResult<()> {
        self.sharing.check()?;
        self.sharing.run(move |leader| leader.events().drain(SessionId::from_bits(session)));
        Ok(())
    }

    /// Ends a session, with all of its calls.
    fn close_session(&self, session: u64) -> PyResult<()> {
        self.sharing.check()?;
        self.sharing.run(move |leader| leader.events().close(SessionId::from_bits(session)));
        Ok(())
    }

    /// Calls under way in a session.
    fn call_count(&self, py: Python<'_>, session: u64) -> PyResult<usize> {
        self.sharing.check()?;
        self.sharing.ask(py, move |leader| leader.events().call_count(SessionId::from_bits(session)))
    }

    /// `(pid, uid, gid)` of the process at the other end of a session, as the kernel says.
    fn peer(&self, py: Python<'_>, session: u64) -> PyResult<Option<(i32, u32, u32)>> {
        self.sharing.check()?;
        let peer = self.sharing.ask(py, move |leader| leader.events().peer(SessionId::from_bits(session)))?;
        Ok(peer.map(|peer| (peer.pid, peer.uid, peer.gid)))
    }

    /// A channel's number. Targets are `(address, weight, priority)`.
    #[pyo3(signature = (targets, policy = "pick_first", throttling = None, health_service = None))]
    fn open(
        &self,
        py: Python<'_>,
        targets: Vec<(String, u32, u32)>,
        policy: &str,
        throttling: Option<(u32, u32)>,
        health_service: Option<String>,
    ) -> PyResult<u64> {
        channels::open(&self.sharing, py, targets, policy, throttling, health_service)
    }

    /// Ends a channel, with its calls.
    fn close_channel(&self, channel: u64) -> PyResult<()> {
        channels::close(&self.sharing, channel)
    }

    /// Connects a channel that is idle, and keeps it connected.
    fn connect(&self, channel: u64) -> PyResult<()> {
        channels::connect(&self.sharing, channel)
    }

    /// 0 idle, 1 connecting, 2 ready, 3 transient failure. `None`: it was closed.
    fn state(&self, py: Python<'_>, channel: u64) -> PyResult<Option<u8>> {
        channels::state(&self.sharing, py, channel)
    }

    /// Begins a call in a channel. `bytes`: its only message; none follows then.
    #[pyo3(signature = (channel, path, bytes = None, metadata = None, timeout = None, waits_for_ready = false, compressed = false, retry = None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
    fn start(
        &self,
        py: Python<'_>,
        channel: u64,
        path: String,
        bytes: Option<Outgoing>,
        metadata: Option<&[u8]>,
        timeout: Option<f64>,
        waits_for_ready: bool,
        compressed: bool,
        retry: Option<&Retry>,
    ) -> PyResult<Option<Served>> {
        self.sharing.check()?;
        let metadata = metadata.map(Bytes::copy_from_slice).unwrap_or_default();
        let deadline_ns = duration(timeout)?
            .map(|most| now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64).max(1));
        let terms = CallTerms { waits_for_ready, retry: retry.map(Retry::policy) };
        let first = bytes.map(|bytes| bytes.message(compressed));
        let begun = self.sharing.ask(py, move |leader| {
            let is_last = first.is_some();
            let start = CallStart { path: &path, metadata, deadline_ns, message: first, is_last };
            let call = leader.events().channel_call(ChannelId::from_bits(channel), start, terms).ok()?;
            Some((call, leader.number(call)))
        })?;
        Ok(begun.map(|(call, number)| Served::new(self.sharing.clone(), call, number, None)))
    }

    /// What has happened, as tuples, within so many seconds; `None`: however long that takes. Keeps the interpreter's lock for `hold` seconds
    /// at most.
    #[pyo3(signature = (timeout = None, hold = 0.0))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>, hold: f64) -> PyResult<Bound<'py, PyList>> {
        self.sharing.check()?;
        let most = duration(timeout)?.unwrap_or(std::time::Duration::MAX);
        let hold = duration(Some(hold))?.unwrap_or_default();
        let list = PyList::empty(py);
        for kept in self.sharing.take(&Interpreter(py), hold, most, EVENT_COUNT) {
            if let Some(event) = self.event(py, kept)? {
                list.append(event)?;
            }
        }
        Ok(list)
    }

    /// The descriptor that becomes readable when there is something, once the loop is armed.
    fn fileno(&self) -> i32 {
        self.fd
    }

    /// Puts everything to sleep. `None`: there is something to be taken before. Otherwise for how long one may sleep, in seconds; negative:
    /// until the descriptor is readable.
    fn arm(&self) -> PyResult<Option<f64>> {
        self.sharing.check()?;
        Ok(self.sharing.arm().map(|most| most.map_or(-1.0, |most| most.as_secs_f64())))
    }

    /// What became of its long messages, by name: how many went and came by ref, and why others did not.
    fn payloads(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        channels::payloads(&self.sharing, py)
    }

    /// Has a thread that waits for events look again.
    fn wake(&self) {
        self.sharing.wake();
    }

    /// Ends it: a thread that waits returns.
    fn close(&self) {
        self.sharing.close();
    }
}

impl Loop {
    fn event<'py>(&self, py: Python<'py>, kept: Kept) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match kept {
            Kept::Call { event: Event::Call { call, path, metadata, deadline_ns }, number, mailbox } => {
                let whole = mailbox.as_ref().and_then(|mailbox| mailbox.lock().take_whole());
                let session = call.session().to_bits().into_pyobject(py)?.into_any();
                let served = Served::new(self.sharing.clone(), call, number, mailbox);
                let kind = if whole.is_some() { kind::UNARY } else { kind::CALL };
                let mut parts = vec![
                    kind.into_pyobject(py)?.into_any(),
                    Bound::new(py, served)?.into_any(),
                    PyString::new(py, &String::from_utf8_lossy(&path)).into_any(),
                    PyBytes::new(py, &metadata).into_any(),
                    deadline_ns.into_pyobject(py)?.into_any(),
                    session,
                ];
                if let Some(message) = &whole {
                    parts.push(received(py, message, self.sharing.pool())?);
                }
                Ok(Some(PyTuple::new(py, parts)?))
            }
            Kept::Of { number, event } => of_call(py, number, &event, self.sharing.pool()),
            Kept::Call { event, .. } | Kept::Loop(event) => of_loop(py, &event),
        }
    }
}

pub(crate) fn parsed(address: &str) -> PyResult<Address> {
    address
        .parse()
        .map_err(|error: tollfree_driver_blocking::AddressError| PyValueError::new_err(error.to_string()))
}

/// A call of a loop: a server's, or one of asyncio's.
#[pyclass(frozen)]
pub(crate) struct Served {
    sharing: Arc<Sharing>,
    call: CallId,
    number: u64,
    /// Where threads wait for what comes.
    mailbox: Option<Arc<CallMailbox>>,
}

impl Served {
    fn new(sharing: Arc<Sharing>, call: CallId, number: u64, mailbox: Option<Arc<CallMailbox>>) -> Served {
        Served { sharing, call, number, mailbox }
    }
}

/// An answer's message, with what goes before and after it.
struct Answer {
    headers: Option<Bytes>,
    message: Option<Message>,
    ending: Option<(u16, Bytes)>,
}

#[pymethods]
impl Served {
    /// The number that events name it by.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Answers, as far as it says: headers, a message, and the end with code and trailers.
    #[pyo3(signature = (headers = None, bytes = None, compressed = false, code = None, trailers = None))]
    fn answer(
        &self,
        headers: Option<&[u8]>,
        bytes: Option<Outgoing>,
        compressed: bool,
        code: Option<u16>,
        trailers: Option<&[u8]>,
    ) -> PyResult<()> {
        self.sharing.check()?;
        let answer = Answer {
            headers: headers.map(Bytes::copy_from_slice),
            message: bytes.map(|bytes| bytes.message(compressed)),
            ending: code.map(|code| (code, trailers.map(Bytes::copy_from_slice).unwrap_or_default())),
        };
        if let (Some(mailbox), Some(_)) = (&self.mailbox, &answer.message) {
            mailbox.lock().says();
        }
        let call = self.call;
        self.sharing.run(move |leader| {
            let Answer { headers, message, ending } = answer;
            // What was cancelled meanwhile is told by its own event.
            if let Some(headers) = headers {
                let _ = leader.events().answer_headers(call, headers);
            }
            if let Some(message) = message {
                let _ = leader.events().send(call, message);
            }
            if let Some((code, trailers)) = ending {
                let _ = leader.events().answer_end(call, code, trailers);
                leader.forget(call);
            }
        });
        Ok(())
    }

    /// Says a message (client).
    #[pyo3(signature = (bytes, compressed = false))]
    fn send(&self, bytes: Outgoing, compressed: bool) -> PyResult<()> {
        self.sharing.check()?;
        let (call, message) = (self.call, bytes.message(compressed));
        self.sharing.run(move |leader| drop(leader.events().send(call, message)));
        Ok(())
    }

    /// Says that no message follows (client).
    fn finish(&self) -> PyResult<()> {
        self.sharing.check()?;
        let call = self.call;
        self.sharing.run(move |leader| drop(leader.events().finish(call)));
        Ok(())
    }

    /// Takes no more messages for now.
    fn pause(&self) -> PyResult<()> {
        self.sharing.check()?;
        let call = self.call;
        self.sharing.run(move |leader| leader.events().pause(call));
        Ok(())
    }

    /// Takes messages again.
    fn resume(&self) -> PyResult<()> {
        self.sharing.check()?;
        let call = self.call;
        self.sharing.run(move |leader| leader.events().resume(call));
        Ok(())
    }

    /// Ends it at once, with a code for the peer. No event follows.
    fn cancel(&self, code: u16) -> PyResult<()> {
        self.sharing.check()?;
        let call = self.call;
        if let Some(mailbox) = &self.mailbox {
            mailbox.fail(Status { code, metadata: Bytes::new(), unprocessed: false });
        }
        self.sharing.run(move |leader| {
            leader.events().cancel(call, code);
            leader.forget(call);
        });
        Ok(())
    }

    /// The next message, for a thread that waits: for so long in seconds. `None`: none follows, or the call was cancelled, or the time is over.
    #[pyo3(signature = (timeout = None))]
    fn receive<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(mailbox) = &self.mailbox else { return Ok(None) };
        Sender::new(&self.sharing, mailbox).receive(py, timeout)
    }

    /// Waits until a number of messages at most are not on their way, for so long in seconds. `False`: the call was cancelled, or the time is over.
    #[pyo3(signature = (timeout = None))]
    fn wait_sent(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let Some(mailbox) = &self.mailbox else { return Ok(true) };
        Sender::new(&self.sharing, mailbox).wait_sent(py, timeout)
    }

    /// Whether it was cancelled, or its session is over.
    fn is_over(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mailbox| mailbox.lock().status().is_some())
    }

    /// Has ENDED come as an event when it is cancelled. `False`: it was.
    fn tell_end(&self) -> bool {
        self.mailbox.as_ref().is_none_or(|mailbox| mailbox.lock().tell_end())
    }
}
