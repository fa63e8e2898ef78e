//! Events as Python gets them: tuples that begin with their kind.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use tollfree_driver_blocking::{Event, Pool};

use crate::pieces::received;

/// Kinds of events; `python/tollfree/_events.py` has the same.
pub(crate) mod kind {
    /// `(CALL, served, path, metadata, deadline_ns or None, session)`.
    pub(crate) const CALL: u8 = 0;
    /// As CALL, with the only message behind: all of the request has come.
    pub(crate) const UNARY: u8 = 1;
    /// `(MESSAGE, number, message)`.
    pub(crate) const MESSAGE: u8 = 2;
    /// `(HALF_CLOSED, number)`.
    pub(crate) const HALF_CLOSED: u8 = 3;
    /// `(SENT, number)`.
    pub(crate) const SENT: u8 = 4;
    /// `(ENDED, number, code, trailers)`.
    pub(crate) const ENDED: u8 = 5;
    /// `(HEADERS, number, metadata)`.
    pub(crate) const HEADERS: u8 = 6;
    /// `(CHANNEL, channel, state)`.
    pub(crate) const CHANNEL: u8 = 7;
    /// `(ACCEPTED, session)`.
    pub(crate) const ACCEPTED: u8 = 8;
    /// `(ATTACHED, session)`.
    pub(crate) const ATTACHED: u8 = 9;
    /// `(CLOSED, session, words)`: a session is over.
    pub(crate) const CLOSED: u8 = 10;
    /// `(NOT_ATTACHED, session, words, is_final)`.
    pub(crate) const NOT_ATTACHED: u8 = 11;
    /// `(REFUSED, words)`: a client was.
    pub(crate) const REFUSED: u8 = 12;
}

fn bytes<'py>(py: Python<'py>, bytes: &Bytes) -> Bound<'py, PyAny> {
    PyBytes::new(py, bytes).into_any()
}

/// An event of a call, by the number that Python knows the call by.
pub(crate) fn of_call<'py>(
    py: Python<'py>,
    number: u64,
    event: &Event,
    pool: Option<&Pool>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let number = number.into_pyobject(py)?.into_any();
    let kind = |kind: u8| Ok::<_, PyErr>(kind.into_pyobject(py)?.into_any());
    let tuple = match event {
        Event::Message { message, .. } => {
            PyTuple::new(py, [kind(kind::MESSAGE)?, number, received(py, message, pool)?])?
        }
        Event::HalfClosed { .. } => PyTuple::new(py, [kind(kind::HALF_CLOSED)?, number])?,
        Event::Sent { .. } => PyTuple::new(py, [kind(kind::SENT)?, number])?,
        Event::Ended { status, .. } => {
            let code = status.code.into_pyobject(py)?.into_any();
            PyTuple::new(py, [kind(kind::ENDED)?, number, code, bytes(py, &status.metadata)])?
        }
        Event::Headers { metadata, .. } => {
            PyTuple::new(py, [kind(kind::HEADERS)?, number, bytes(py, metadata)])?
        }
        _ => return Ok(None),
    };
    Ok(Some(tuple))
}

/// An event of no call.
pub(crate) fn of_loop<'py>(py: Python<'py>, event: &Event) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let kind = |kind: u8| Ok::<_, PyErr>(kind.into_pyobject(py)?.into_any());
    let number = |number: u64| Ok::<_, PyErr>(number.into_pyobject(py)?.into_any());
    let words = |words: String| PyString::new(py, &words).into_any();
    let tuple = match event {
        Event::ChannelChanged { channel, state } => {
            let state = (*state as u8).into_pyobject(py)?.into_any();
            PyTuple::new(py, [kind(kind::CHANNEL)?, number(channel.to_bits())?, state])?
        }
        Event::Accepted { session, .. } => {
            PyTuple::new(py, [kind(kind::ACCEPTED)?, number(session.to_bits())?])?
        }
        Event::Connected { session } => {
            PyTuple::new(py, [kind(kind::ATTACHED)?, number(session.to_bits())?])?
        }
        Event::Closed { session, reason } => {
            PyTuple::new(py, [kind(kind::CLOSED)?, number(session.to_bits())?, words(reason.to_string())])?
        }
        Event::NotConnected { session, error } => {
            let is_final = !error.kind.is_transient();
            let is_final = pyo3::types::PyBool::new(py, is_final).to_owned().into_any();
            let session = number(session.to_bits())?;
            PyTuple::new(py, [kind(kind::NOT_ATTACHED)?, session, words(error.to_string()), is_final])?
        }
        Event::Refused { error, .. } => PyTuple::new(py, [kind(kind::REFUSED)?, words(error.to_string())])?,
        Event::NotAccepted { error, .. } => {
            PyTuple::new(py, [kind(kind::REFUSED)?, words(error.to_string())])?
        }
        _ => return Ok(None),
    };
    Ok(Some(tuple))
}
