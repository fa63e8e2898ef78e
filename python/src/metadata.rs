//! Metadata: pairs as Python has them, and blocks as they travel.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use tollfree_layout::metadata;

/// Padding is left out, and taken where it came.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A block of pairs `(name, value)`. Values of names that end in `-bin` are bytes, others are ASCII text, or bytes of it. What is gRPC's own
/// (`grpc-timeout`, `content-type` and the like) is left out.
#[pyfunction]
pub(crate) fn pack<'py>(py: Python<'py>, pairs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut block = Vec::new();
    for pair in pairs.try_iter()? {
        append(&mut block, &pair?)?;
    }
    Ok(PyBytes::new(py, &block))
}

fn append(block: &mut Vec<u8>, pair: &Bound<'_, PyAny>) -> PyResult<()> {
    let shape = || PyTypeError::new_err("metadata has pairs (name, value)");
    if pair.len().map_err(|_| shape())? != 2 {
        return Err(shape());
    }
    let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
    let name: String =
        name.extract().map_err(|_| PyTypeError::new_err("a name of metadata has to be str"))?;
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_good) {
        let words = format!("metadata name {name:?} is illegal: 0-9 a-z _ - . are possible");
        return Err(PyValueError::new_err(words));
    }
    if is_own(&name) {
        return Ok(());
    }
    let raw;
    let value = match value.cast::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes(),
        Err(_) => {
            let wrong =
                || PyTypeError::new_err(format!("the value of metadata {name:?} has to be str or bytes"));
            raw = value.cast::<PyString>().map_err(|_| wrong())?.extract::<String>()?;
            raw.as_bytes()
        }
    };
    let packed = match name.ends_with("-bin") {
        true => metadata::pack(block, &name, BASE64.encode(value).as_bytes()),
        false if value.iter().all(|byte| (0x20..0x7f).contains(byte)) => {
            metadata::pack(block, &name, value.trim_ascii())
        }
        false => {
            let words = format!("the value of metadata {name:?} is illegal: printable ASCII is possible");
            return Err(PyValueError::new_err(words));
        }
    };
    packed.map_err(|error| PyValueError::new_err(format!("metadata {name:?}: {error}")))
}

/// Whether a name is gRPC's own: an application's pair of it is not sent.
fn is_own(name: &str) -> bool {
    matches!(name, "content-type" | "te" | "grpc-timeout" | "grpc-message-type" | "grpc-status")
}

/// The pairs of a block, in order: names and text as `str`, values of names that end in `-bin` as `bytes`.
#[pyfunction]
pub(crate) fn unpack<'py>(py: Python<'py>, block: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let pairs = PyList::empty(py);
    // A block that ends in the middle was refused by the session; what is before counts.
    for (name, value) in metadata::pairs(block).map_while(Result::ok) {
        let name = String::from_utf8_lossy(name.as_bytes());
        if !name.ends_with("-bin") {
            pairs.append(PyTuple::new(py, [name.into_pyobject(py)?.into_any(), text(py, value)])?)?;
            continue;
        }
        // Several values of a name may stand in one, as HTTP/2 allows.
        for part in value.split(|byte| *byte == b',') {
            if let Ok(decoded) = BASE64.decode(part.trim_ascii()) {
                let pair = [(&*name).into_pyobject(py)?.into_any(), PyBytes::new(py, &decoded).into_any()];
                pairs.append(PyTuple::new(py, pair)?)?;
            }
        }
    }
    Ok(pairs)
}

/// As grpcio has it: text if it is, else bytes.
fn text<'py>(py: Python<'py>, value: &[u8]) -> Bound<'py, PyAny> {
    match std::str::from_utf8(value) {
        Ok(text) => PyString::new(py, text).into_any(),
        Err(_) => PyBytes::new(py, value).into_any(),
    }
}
