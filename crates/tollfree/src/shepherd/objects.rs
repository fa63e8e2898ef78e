//! Object mode: which methods of a worker take objects, and the tables by which its requests are made such.
//!
//! A worker says with a method's first call that it takes objects of certain types. It is asked for their tables once, while calls
//! go on as bytes; from then on requests are decoded here, and answers encoded. Each worker's tables are its own: what another
//! process calls by the same names has nothing to do with them.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use http_body::Body as _;
use parking_lot::Mutex;
use tollfree_processor::Processor;
use tollfree_transport::{Attachment, GRPC_PREFIX_LEN};
use tonic::Status;

use crate::endpoint::balance::Picked;
use crate::endpoint::{Connection, Endpoint};
use crate::http::call::attempt;
use crate::http::shortcut::request;
use crate::message::translation::{DESCRIPTION_LEN_MAX, Translation, load};
use crate::server::control::{DESCRIBE, METHOD};
use crate::shepherd::Attached;

/// A description must have come within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Methods of a worker whose tables are kept; others' messages go as bytes.
const METHOD_COUNT_MAX: usize = 1024;
/// Bytes of a worker's tables together.
const TABLES_LEN_MAX: usize = 16 << 20;

/// What is known of a worker's methods.
pub(super) struct Objects {
    /// Whether objects are wanted at all.
    wanted: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None`: the description is on its way, or can't be used.
    methods: HashMap<String, Option<Arc<Translation>>>,
    /// Each of them once.
    tables: Vec<(Bytes, Processor)>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl State {
    /// The processor of a table, which methods of one schema have in common.
    fn load(&mut self, table: Bytes) -> Result<Processor, String> {
        if let Some((_, processor)) = self.tables.iter().find(|(known, _)| *known == table) {
            return Ok(processor.clone());
        }
        let len: usize = self.tables.iter().map(|(known, _)| known.len()).sum();
        if len + table.len() > TABLES_LEN_MAX {
            return Err(format!("the tables of this worker would have more than {TABLES_LEN_MAX} bytes"));
        }
        let processor = load(&table)?;
        self.tables.push((table, processor.clone()));
        Ok(processor)
    }
}

impl Objects {
    pub(super) fn new(wanted: bool) -> Objects {
        Objects { wanted, state: Mutex::default() }
    }

    /// How messages of a method are changed for this worker. `None`: they go as they are.
    pub(super) fn of(&self, path: &str, worker: &Attached) -> Option<Arc<Translation>> {
        let types = worker.attachment.object_types(path).filter(|_| self.wanted)?;
        let mut state = self.state.lock();
        if let Some(known) = state.methods.get(path) {
            return known.clone();
        }
        if state.methods.len() < METHOD_COUNT_MAX {
            state.methods.insert(path.to_owned(), None);
            let (endpoint, attachment) = (worker.endpoint.clone(), worker.attachment.clone());
            tokio::spawn(learn(
                Arc::downgrade(&worker.objects),
                endpoint,
                attachment,
                path.to_owned(),
                types,
            ));
        }
        None
    }
}

/// Asks a worker for the tables of a method, and has its messages changed from then on.
async fn learn(
    objects: Weak<Objects>,
    endpoint: Arc<Endpoint>,
    attachment: Arc<Attachment>,
    path: String,
    types: u64,
) {
    let name = endpoint.name.clone();
    let asked = ask(Picked { endpoint, connection: Connection::Session(attachment) }, &path);
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    let asked = asked.unwrap_or_else(|_| Err(format!("the answer has taken longer than {PATIENCE:?}")));
    let Some(objects) = objects.upgrade() else { return };
    let mut state = objects.state.lock();
    let read = asked.and_then(|description| Translation::read(description, |table| state.load(table)));
    let said = read.and_then(|translation| match translation.types() == types {
        true => Ok(translation),
        false => Err("the tables are of other types than the session said".to_owned()),
    });
    match said {
        Ok(translation) => {
            tracing::debug!(worker = %name, path, "its messages are handed over as objects");
            state.methods.insert(path, Some(Arc::new(translation)));
        }
        Err(reason) => {
            tracing::warn!(worker = %name, path, reason, "its messages are handed over as bytes");
        }
    }
}

/// The description of a method, as its process tells it.
async fn ask(picked: Picked, path: &str) -> Result<Bytes, String> {
    let method = HeaderValue::from_str(path).map_err(|_| "the method's path is no header".to_owned())?;
    let asked = attempt(&picked, None, request(DESCRIBE, Some((METHOD, method)))).await;
    let (parts, mut body) = asked.map_err(|failed| failed.status.to_string())?.into_parts();
    if let Some(status) = Status::from_header_map(&parts.headers) {
        return Err(status.to_string());
    }
    let mut message = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|status| status.to_string())?;
        if let Ok(data) = frame.into_data() {
            if message.len() + data.len() > DESCRIPTION_LEN_MAX {
                return Err(format!("the description has more than {DESCRIPTION_LEN_MAX} bytes"));
            }
            message.extend_from_slice(&data);
        }
    }
    let mut message = message.freeze();
    if message.len() < GRPC_PREFIX_LEN {
        return Err("the answer has no message".into());
    }
    message.advance(GRPC_PREFIX_LEN);
    Ok(message)
}
