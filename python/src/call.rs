//! A call of a client, for threads that read, write and wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tollfree_driver_blocking::{CallId, CallMailbox, CallNews, EventLoop, Leader, Status};

use crate::pieces::{Outgoing, received};
use crate::sharing::Sharing;

/// Messages of which a sender may have so many, or so many bytes, under way before it waits.
const UNSENT_COUNT: usize = 16;
/// A time in seconds, as Python has it; `None` as nothing.
pub(crate) fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err("a time has to be a number")),
        Some(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))),
    }
}

/// A thread's view of a mailbox: waiting for what comes, and for what was said to be on its way.
pub(crate) struct Sender<'a> {
    sharing: &'a Arc<Sharing>,
    mailbox: &'a Arc<CallMailbox>,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(sharing: &'a Arc<Sharing>, mailbox: &'a Arc<CallMailbox>) -> Sender<'a> {
        Sender { sharing, mailbox }
    }

    /// Waits until something is so, for so many seconds. `false`: the time is over.
    fn wait(
        &self,
        py: Python<'_>,
        is_done: impl Fn(&CallNews) -> bool + Sync,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        if is_done(&self.mailbox.lock()) {
            return Ok(true);
        }
        self.sharing.check()?;
        self.sharing.wait_for(py, None::<fn(&mut Leader)>, self.mailbox, is_done, duration(timeout)?)
    }

    /// Has something done with the call, once it has begun.
    fn run(&self, command: impl FnOnce(&mut EventLoop, CallId) + Send + 'static) {
        let mailbox = self.mailbox.clone();
        self.sharing.run(move |leader| {
            let call = mailbox.lock().call();
            if let Some(call) = call {
                command(leader.events(), call);
            }
        });
    }

    pub(crate) fn receive<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.wait(py, |came| came.has_message() || came.heard_all(), timeout)?;
        let next = self.mailbox.lock().next_message();
        let Some((message, resumes)) = next else { return Ok(None) };
        if resumes {
            self.run(EventLoop::resume);
        }
        received(py, &message, self.sharing.pool()).map(Some)
    }

    pub(crate) fn wait_sent(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let is_done = |came: &CallNews| came.unsent_count() < UNSENT_COUNT || came.status().is_some();
        let is_in_time = self.wait(py, is_done, timeout)?;
        Ok(is_in_time && self.mailbox.lock().status().is_none())
    }
}

/// A client's call that has begun. Any thread may use it; several at once may, where one reads and one writes.
#[pyclass(frozen)]
pub(crate) struct Call {
    sharing: Arc<Sharing>,
    mailbox: Arc<CallMailbox>,
}

impl Call {
    pub(crate) fn new(sharing: Arc<Sharing>, mailbox: Arc<CallMailbox>) -> Call {
        Call { sharing, mailbox }
    }

    fn sender(&self) -> Sender<'_> {
        Sender::new(&self.sharing, &self.mailbox)
    }
}

#[pymethods]
impl Call {
    /// The number that the client's notices name it by.
    #[getter]
    fn number(&self) -> u64 {
        self.mailbox.lock().number()
    }

    /// Says a message. Waits while earlier ones are not on their way, for so long in seconds. `False`: the call is over, or the time.
    #[pyo3(signature = (bytes, compressed = false, timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        bytes: Outgoing,
        compressed: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        self.sharing.check()?;
        {
            let mut came = self.mailbox.lock();
            if came.status().is_some() {
                return Ok(false);
            }
            came.says();
        }
        let message = bytes.message(compressed);
        // What has ended is told by its status.
        self.sender().run(move |events, call| drop(events.send(call, message)));
        self.sender().wait_sent(py, timeout)
    }

    /// Says that no message follows.
    fn finish(&self) -> PyResult<()> {
        self.sharing.check()?;
        self.sender().run(|events, call| drop(events.finish(call)));
        Ok(())
    }

    /// The next message; waits for it, for so long in seconds. `None`: none follows, or the time is over.
    #[pyo3(signature = (timeout = None))]
    fn receive<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.sender().receive(py, timeout)
    }

    /// The block of the answer's headers; waits for it, for so long in seconds. `None`: there are none.
    #[pyo3(signature = (timeout = None))]
    fn headers<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.sender().wait(py, |came| came.headers().is_some() || came.status().is_some(), timeout)?;
        Ok(self.mailbox.lock().headers().map(|block| PyBytes::new(py, block)))
    }

    /// Code and block of trailers; waits for the end, for so long in seconds. `None`: the time is over.
    #[pyo3(signature = (timeout = None))]
    fn status<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(u16, Bound<'py, PyBytes>)>> {
        self.sender().wait(py, |came| came.status().is_some(), timeout)?;
        let came = self.mailbox.lock();
        Ok(came.status().map(|status| (status.code, PyBytes::new(py, &status.metadata))))
    }

    /// Whether it is over.
    fn is_over(&self) -> bool {
        self.mailbox.lock().status().is_some()
    }

    /// Ends it, unless it is over: here with a code and trailers, at the server as cancelled. Whether that ended it.
    fn cancel(&self, code: u16, trailers: &[u8]) -> PyResult<bool> {
        self.sharing.check()?;
        let status = Status { code, metadata: Bytes::copy_from_slice(trailers), unprocessed: false };
        if !self.sharing.end(&self.mailbox, status) {
            return Ok(false);
        }
        let mailbox = self.mailbox.clone();
        self.sharing.run(move |leader| {
            let call = mailbox.lock().call();
            if let Some(call) = call {
                leader.events().cancel(call, 1);
                leader.forget(call);
            }
        });
        Ok(true)
    }

    /// Has the client's notices tell when it is over. `False`: it is.
    fn tell_end(&self) -> bool {
        let tells = self.mailbox.lock().tell_end();
        if tells {
            self.sharing.tells();
        }
        tells
    }
}

/// Nobody wants it any more: it is cancelled, if it is not over.
impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over() && self.sharing.check().is_ok() {
            let _ = self.cancel(1, &[]);
        }
    }
}
