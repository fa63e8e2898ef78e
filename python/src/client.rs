//! Channels and calls for threads: one client has a process's channels.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tollfree_driver_blocking::{
    CallMailbox, CallNews, CallStart, CallTerms, ChannelId, Leader, LoopConfig, Mailbox, Message, Notice,
    RetryPolicy, Status, Told, next_number,
};
use tollfree_os::clock::now_ns;

use crate::call::{Call, duration};
use crate::channels;
use crate::pieces::{Outgoing, received};
use crate::pool::Pool;
use crate::sharing::Sharing;

/// gRPC's UNAVAILABLE.
const UNAVAILABLE: u16 = 14;

/// When calls of a method are made again.
#[pyclass(frozen)]
pub(crate) struct Retry(Arc<RetryPolicy>);

#[pymethods]
impl Retry {
    /// Pauses are in seconds.
    #[new]
    fn new(
        attempts_max: u32,
        backoff_first: f64,
        backoff_max: f64,
        multiplier: f64,
        codes: Vec<u16>,
    ) -> PyResult<Retry> {
        let pause = |seconds| duration(Some(seconds)).map(Option::unwrap_or_default);
        Ok(Retry(Arc::new(RetryPolicy {
            attempts_max,
            backoff_first: pause(backoff_first)?,
            backoff_max: pause(backoff_max)?,
            multiplier,
            codes,
        })))
    }
}

impl Retry {
    pub(crate) fn policy(&self) -> Arc<RetryPolicy> {
        self.0.clone()
    }
}

/// A loop's settings, as Python gives them.
pub(crate) fn config(
    agent: Option<String>,
    receive_len_max: Option<usize>,
    metadata_len_max: Option<u32>,
    call_count_max: Option<u32>,
    pool: Option<&Bound<'_, Pool>>,
) -> LoopConfig {
    let pool = pool.map(|pool| pool.get().member());
    let mut config = LoopConfig { agent, pool, ..LoopConfig::default() };
    if let Some(most) = receive_len_max {
        config.message_len_max = most;
    }
    if let Some(most) = metadata_len_max {
        config.limits.metadata_len_max = most as usize;
    }
    if let Some(most) = call_count_max {
        config.limits.stream_count = most;
    }
    config
}

/// A process's channels for threads, with their loop.
#[pyclass(frozen)]
pub(crate) struct Client {
    sharing: Arc<Sharing>,
}

#[pymethods]
impl Client {
    /// Without channels. Messages that are longer than so many bytes end their calls with RESOURCE_EXHAUSTED.
    #[new]
    #[pyo3(signature = (agent = None, receive_len_max = None, metadata_len_max = None, pool = None))]
    fn new(
        agent: Option<String>,
        receive_len_max: Option<usize>,
        metadata_len_max: Option<u32>,
        pool: Option<&Bound<'_, Pool>>,
    ) -> PyResult<Client> {
        let config = config(agent, receive_len_max, metadata_len_max, None, pool);
        let sharing = Sharing::new(config, Told::Notices)?;
        sharing.watch()?;
        Ok(Client { sharing })
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

    /// A method of a channel.
    #[pyo3(signature = (channel, path, retry = None))]
    fn method(&self, channel: u64, path: String, retry: Option<&Retry>) -> Method {
        Method {
            sharing: self.sharing.clone(),
            channel: ChannelId::from_bits(channel),
            path: path.into(),
            retry: retry.map(|retry| retry.0.clone()),
        }
    }

    /// The next notice, within so many seconds: `(number, None)` of a call that is over, `(channel, state)` of a channel. `None`: none has come.
    /// StopIteration: no more come.
    fn notice(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<(u64, Option<u8>)>> {
        self.sharing.check()?;
        let most = duration(Some(timeout))?.unwrap_or_default();
        match py.detach(|| self.sharing.notices().next(most)) {
            Ok(None) => Ok(None),
            Ok(Some(Notice::Ended(number))) => Ok(Some((number, None))),
            Ok(Some(Notice::Channel(channel, state))) => Ok(Some((channel.to_bits(), Some(state as u8)))),
            Err(_) => Err(pyo3::exceptions::PyStopIteration::new_err("the client was closed")),
        }
    }

    /// What became of its long messages, by name: how many went and came by ref, and why others did not.
    fn payloads(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        channels::payloads(&self.sharing, py)
    }

    /// Ends its threads.
    fn close(&self) {
        self.sharing.close();
    }
}

/// A method of a channel: what its calls are begun with.
#[pyclass(frozen)]
pub(crate) struct Method {
    sharing: Arc<Sharing>,
    channel: ChannelId,
    path: Arc<str>,
    retry: Option<Arc<RetryPolicy>>,
}

/// A call's metadata, deadline and terms.
struct Beginning {
    metadata: Bytes,
    deadline_ns: Option<u64>,
    terms: CallTerms,
}

impl Method {
    fn beginning(
        &self,
        metadata: Option<&[u8]>,
        timeout: Option<f64>,
        waits_for_ready: bool,
    ) -> PyResult<Beginning> {
        // None of a channel's deadlines is 0, which says none.
        let deadline =
            |most: Duration| now_ns().saturating_add(most.as_nanos().min(u64::MAX.into()) as u64).max(1);
        Ok(Beginning {
            metadata: metadata.map(Bytes::copy_from_slice).unwrap_or_default(),
            deadline_ns: duration(timeout)?.map(deadline),
            terms: CallTerms { waits_for_ready, retry: self.retry.clone() },
        })
    }

    fn mailbox(&self) -> Arc<CallMailbox> {
        Arc::new(Mailbox::new(CallNews::new(next_number())))
    }

    /// Begins a call, with its first message if it has one.
    fn begins(
        &self,
        mailbox: Arc<CallMailbox>,
        beginning: Beginning,
        first: Option<Message>,
    ) -> impl FnOnce(&mut Leader) + Send + 'static {
        let (channel, path) = (self.channel, self.path.clone());
        move |leader: &mut Leader| {
            let Beginning { metadata, deadline_ns, terms } = beginning;
            if mailbox.lock().status().is_some() {
                // It was cancelled before.
                return;
            }
            let is_last = first.is_some();
            let start = CallStart { path: &path, metadata, deadline_ns, message: first, is_last };
            match leader.events().channel_call(channel, start, terms) {
                Ok(call) => leader.begin(call, mailbox),
                Err(_) => mailbox.fail(Status::here(1, "the channel was closed")),
            }
        }
    }
}

#[pymethods]
impl Method {
    /// Makes a unary call. Gives the answer's bytes where it succeeds and `is_whole` is not wanted, else
    /// `(code, message or None, headers, trailers)`.
    #[pyo3(signature = (bytes, metadata = None, timeout = None, waits_for_ready = false, compressed = false, is_whole = false))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
    fn unary<'py>(
        &self,
        py: Python<'py>,
        bytes: Outgoing,
        metadata: Option<&[u8]>,
        timeout: Option<f64>,
        waits_for_ready: bool,
        compressed: bool,
        is_whole: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.sharing.check()?;
        let beginning = self.beginning(metadata, timeout, waits_for_ready)?;
        let mailbox = self.mailbox();
        let begins = self.begins(mailbox.clone(), beginning, Some(bytes.message(compressed)));
        // Should a signal end the wait, this cancels the call.
        let call = Call::new(self.sharing.clone(), mailbox.clone());
        self.sharing.wait_for(py, Some(begins), &mailbox, |came| came.status().is_some(), None)?;
        drop(call);
        let mut came = mailbox.lock();
        let first = came.next_message().map(|(message, _)| message);
        let is_one = first.is_some() && !came.has_message();
        let (code, trailers) = match came.status() {
            Some(Status { code, metadata, .. }) => (*code, metadata.clone()),
            None => (UNAVAILABLE, Bytes::new()),
        };
        if let (0, false, true, Some(message)) = (code, is_whole, is_one, &first)
            && !message.compressed
        {
            return received(py, message, self.sharing.pool());
        }
        let block = |block: Option<&Bytes>| PyBytes::new(py, block.map_or(&[], |block| block)).into_any();
        let message = match &first {
            Some(message) if is_one => received(py, message, self.sharing.pool())?,
            _ => py.None().into_bound(py),
        };
        let code = code.into_pyobject(py)?.into_any();
        let all = [code, message, block(came.headers()), block(Some(&trailers))];
        Ok(PyTuple::new(py, all)?.into_any())
    }

    /// Begins a call. `bytes`: its only message; none follows then.
    #[pyo3(signature = (bytes = None, metadata = None, timeout = None, waits_for_ready = false, compressed = false))]
    fn start(
        &self,
        bytes: Option<Outgoing>,
        metadata: Option<&[u8]>,
        timeout: Option<f64>,
        waits_for_ready: bool,
        compressed: bool,
    ) -> PyResult<Call> {
        self.sharing.check()?;
        let beginning = self.beginning(metadata, timeout, waits_for_ready)?;
        let mailbox = self.mailbox();
        let first = bytes.map(|bytes| bytes.message(compressed));
        let begins = self.begins(mailbox.clone(), beginning, first);
        self.sharing.run(begins);
        Ok(Call::new(self.sharing.clone(), mailbox))
    }
}
