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
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use parking_lot::Mutex;
use tollfree_processor::Processor;
use tollfree_transport::{Attachment, GRPC_PREFIX_LEN};
use tonic::Status;

use crate::endpoint::balance::Picked;
use crate::endpoint::{Connection, Endpoint};
use crate::http::call::attempt;
use crate::http::shortcut::request;
use crate::message::encoding::headers_say_encoding;
use crate::message::fates::{Fate, Fates, Unfit};
use crate::message::translation::{DESCRIPTION_LEN_MAX, Translation, load, no_tables};
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
    unfit: Unfit,
    fates: Fates,
    state: Mutex<State>,
}

/// How a call's messages are handed over.
pub(super) enum Way {
    /// As they are: the method takes no objects, or its process has not said so yet.
    Plain,
    Objects(Arc<Translation>),
    /// As they are, and what that is counted as.
    Bytes(Fate),
    /// Not at all.
    Refused(Status),
}

/// What is known of a method that takes objects.
#[derive(Clone)]
enum Known {
    /// The description is on its way.
    Asked,
    /// It can't be used, or has not come.
    Useless,
    Here(Arc<Translation>),
}

#[derive(Default)]
struct State {
    methods: HashMap<String, Known>,
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
    pub(super) fn new(wanted: bool, unfit: Unfit, fates: Fates) -> Objects {
        Objects { wanted, unfit, fates, state: Mutex::default() }
    }

    /// The same for another worker, of which nothing is known yet.
    pub(super) fn anew(&self, fates: Fates) -> Objects {
        Objects::new(self.wanted, self.unfit, fates)
    }

    /// Whether objects are handed over at all.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Where it is counted what becomes of messages.
    pub(super) fn fates(&self) -> &Fates {
        &self.fates
    }

    /// How the messages of a call are handed to this worker.
    pub(super) fn of(&self, path: &str, headers: &HeaderMap, worker: &Attached) -> Way {
        let types = if self.wanted { worker.attachment.object_types(path) } else { None };
        let Some(types) = types else { return Way::Plain };
        match self.known(path, types, worker) {
            Known::Asked => Way::Bytes(Fate::Asked),
            // How messages are compressed is left to the handler's side.
            Known::Here(_) if headers_say_encoding(headers) => Way::Bytes(Fate::Compressed),
            Known::Here(translation) => Way::Objects(translation),
            Known::Useless if self.unfit == Unfit::Refuse => {
                self.fates.add(Fate::NoTables);
                Way::Refused(no_tables())
            }
            Known::Useless => Way::Bytes(Fate::NoTables),
        }
    }

    /// What is known of a method. It is asked for by the first call after the process has said that it takes objects.
    fn known(&self, path: &str, types: u64, worker: &Attached) -> Known {
        let mut state = self.state.lock();
        if let Some(known) = state.methods.get(path) {
            return known.clone();
        }
        if state.methods.len() < METHOD_COUNT_MAX {
            self.fates.add(Fate::First);
            state.methods.insert(path.to_owned(), Known::Asked);
            let (endpoint, attachment) = (worker.endpoint.clone(), worker.attachment.clone());
            tokio::spawn(learn(
                Arc::downgrade(&worker.objects),
                endpoint,
                attachment,
                path.to_owned(),
                types,
            ));
            return Known::Asked;
        }
        Known::Useless
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
            let translation = translation.counted(objects.fates.clone(), objects.unfit);
            state.methods.insert(path, Known::Here(Arc::new(translation)));
        }
        Err(reason) => {
            tracing::warn!(worker = %name, path, reason, "its messages can't be handed over as objects");
            state.methods.insert(path, Known::Useless);
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
