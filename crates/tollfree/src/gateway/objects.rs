//! Object mode: which methods of a backend connection take objects, and the tables by which its requests are made such.
//!
//! A backend connection says with a method's first call that it takes objects of certain types. It is asked for their tables once, while calls
//! go on as bytes; from then on requests are decoded here, and answers encoded. One that trusts the gateway is asked to join the pool of
//! its group, too, and reads large objects there. Each backend connection's tables are its own: what another
//! process calls by the same names has nothing to do with them.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tollfree_driver_tokio::{Attachment, GRPC_PREFIX_LEN, PeerPolicy, RateLimitedLog};
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::balance::Picked;
use crate::endpoint::{Connection, Endpoint};
use crate::gateway::Attached;
use crate::gateway::places::{Place, Places};
use crate::gateway::shelves::{Description, Shelf, Shelved, Shelves};
use crate::gateway::tables::Tables;
use crate::http::call::attempt;
use crate::http::direct_connection::request;
use crate::message::compression::Encodings;
use crate::message::conversions::{Conversion, Conversions, OnUnconvertible};
use crate::message::encoding::headers_say_encoding;
use crate::message::holdings::{Held, Holdings};
use crate::message::repacking::{Repacking, Room};
use crate::message::translation::{DESCRIPTION_LEN_MAX, Translation, no_tables};
use crate::server::control::{DESCRIBE, INVITATION, JOIN, METHOD, POOL};

/// An answer must have come within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Methods of a backend connection whose tables are kept; others' messages go as bytes.
const METHOD_COUNT_MAX: usize = 1024;
/// What is counted for a method that takes objects, beside its path, in bytes.
const METHOD_LEN: usize = 512;

static OTHER_TYPES: RateLimitedLog = RateLimitedLog::new();
static USELESS: RateLimitedLog = RateLimitedLog::new();

/// What is known of a backend connection's methods.
pub(super) struct Objects {
    /// Whether objects are wanted at all.
    wanted: bool,
    on_unconvertible: OnUnconvertible,
    conversions: Conversions,
    /// Where large ones are placed, for all backend connections.
    places: Arc<Places>,
    /// Tables of all backend connections.
    shelves: Arc<Shelves>,
    /// Those of its group, once it takes objects.
    shelf: OnceLock<Arc<Shelf>>,
    /// Those of this one.
    tables: Arc<Mutex<Vec<Arc<Shelved>>>>,
    holdings: Option<Arc<dyn Holdings>>,
    /// The backend connection is asked for one description at a time: each may be long.
    describing: Arc<Semaphore>,
    state: Mutex<State>,
}

/// How a call's messages are handed over.
pub(super) enum Way {
    /// As they are: the method takes no objects, or its process has not said so yet.
    Plain,
    /// As objects, and inflated and deflated as the call says.
    Objects(Arc<Translation>, Option<Repacking>),
    /// As they are, and what that is counted as.
    Bytes(Conversion),
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

/// A method that takes objects.
struct Method {
    known: Known,
    _held: Held,
}

#[derive(Default)]
struct State {
    methods: HashMap<String, Method>,
    /// What the operator gave for some.
    given: Option<Arc<Tables>>,
    /// The backend connection has been asked to join its group's pool, or is not to be.
    is_asked: bool,
    /// That pool, which it has joined.
    place: Option<Arc<Place>>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Objects {
    pub(super) fn new(wanted: bool, on_unconvertible: OnUnconvertible, conversions: Conversions) -> Objects {
        Objects {
            wanted,
            on_unconvertible,
            conversions,
            places: Arc::default(),
            shelves: Arc::default(),
            shelf: OnceLock::new(),
            tables: Arc::default(),
            holdings: None,
            describing: Arc::new(Semaphore::new(1)),
            state: Mutex::default(),
        }
    }

    /// The same for another backend connection, of which nothing is known yet.
    pub(super) fn anew(&self, conversions: Conversions) -> Objects {
        let (places, shelves) = (self.places.clone(), self.shelves.clone());
        let holdings = self.holdings.clone();
        Objects { places, shelves, holdings, ..Objects::new(self.wanted, self.on_unconvertible, conversions) }
    }

    /// What the backend connection makes the gateway hold is counted there.
    pub(super) fn count_holdings(&mut self, holdings: Arc<dyn Holdings>) {
        self.holdings = Some(holdings);
    }

    /// Whether objects are handed over at all.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Where it is counted what becomes of messages.
    pub(super) fn conversions(&self) -> &Conversions {
        &self.conversions
    }

    /// How the messages of a call are handed to this backend connection.
    pub(super) fn of(
        &self,
        path: &str,
        headers: &HeaderMap,
        room: Option<&Arc<dyn Room>>,
        backend_connection: &Attached,
    ) -> Way {
        let types = if self.wanted { backend_connection.attachment.object_types(path) } else { None };
        let Some(types) = types else { return Way::Plain };
        match self.known(path, types, backend_connection) {
            Known::Asked => Way::Bytes(Conversion::Asked),
            Known::Here(translation) if headers_say_encoding(headers) => {
                let Some(room) = room else { return Way::Bytes(Conversion::Compressed) };
                let Some(encodings) = translation.encodings() else {
                    self.ask_encodings(path, types, &translation, backend_connection);
                    return Way::Bytes(Conversion::Asked);
                };
                match Repacking::of(headers, encodings, room, &self.conversions) {
                    Some(repacking) => Way::Objects(translation, Some(repacking)),
                    None => Way::Bytes(Conversion::Compressed),
                }
            }
            Known::Here(translation) => Way::Objects(translation, None),
            Known::Useless if self.on_unconvertible == OnUnconvertible::Refuse => {
                self.conversions.add(Conversion::NoTables);
                Way::Refused(no_tables())
            }
            Known::Useless => Way::Bytes(Conversion::NoTables),
        }
    }

    /// What is known of a method. It is asked for by the first call after the process has said that it takes objects.
    fn known(&self, path: &str, types: u64, backend_connection: &Attached) -> Known {
        let mut state = self.state.lock();
        if let Some(method) = state.methods.get(path) {
            return method.known.clone();
        }
        let mut held = Held::nothing(self.holdings.as_ref());
        if state.methods.len() >= METHOD_COUNT_MAX || held.add(METHOD_LEN + path.len()).is_err() {
            return Known::Useless;
        }
        if let Some(translation) = self.given(&state, path, types, backend_connection) {
            let known = Known::Here(Arc::new(translation));
            state.methods.insert(path.to_owned(), Method { known: known.clone(), _held: held });
            if !std::mem::replace(&mut state.is_asked, true) {
                tokio::spawn(Learning::of(backend_connection).lend());
            }
            return known;
        }
        self.conversions.add(Conversion::First);
        state.methods.insert(path.to_owned(), Method { known: Known::Asked, _held: held });
        tokio::spawn(Learning::of(backend_connection).learn(path.to_owned(), types));
        Known::Asked
    }

    /// What the operator gave for a method, if its process has the same types.
    fn given(
        &self,
        state: &State,
        path: &str,
        types: u64,
        backend_connection: &Attached,
    ) -> Option<Translation> {
        let given = state.given.as_ref()?.get(path)?;
        if given.types() != types {
            if let Some(unsaid) = OTHER_TYPES.turn() {
                let backend_connection = &*backend_connection.endpoint.name;
                tracing::warn!(
                    backend_connection,
                    path,
                    unsaid,
                    "the descriptors in the config are of other types than its process: it is asked for its own"
                );
            }
            return None;
        }
        Some(self.own(given.clone(), &backend_connection.registration.group))
    }

    /// The tables of the backend connection's group.
    fn shelf(&self, group: &Arc<str>) -> &Arc<Shelf> {
        self.shelf.get_or_init(|| self.shelves.of(group))
    }

    /// A translation of the backend connection's messages, which are counted and have the turns of its group.
    fn own(&self, translation: Translation, group: &Arc<str>) -> Translation {
        translation
            .counted(self.conversions.clone(), self.on_unconvertible)
            .in_turns(self.shelf(group).turns())
    }

    /// Asks a backend connection once how it takes and sends messages that are compressed, of which an operator's tables say nothing.
    fn ask_encodings(
        &self,
        path: &str,
        types: u64,
        translation: &Translation,
        backend_connection: &Attached,
    ) {
        let unsaid = translation.clone().with_encodings(Encodings::default());
        if let Some(method) = self.state.lock().methods.get_mut(path) {
            method.known = Known::Here(Arc::new(unsaid));
        }
        tokio::spawn(Learning::of(backend_connection).learn(path.to_owned(), types));
    }

    /// From now on these are the operator's tables. Methods of which they say something else than before are learnt anew.
    pub(super) fn give(&self, tables: Option<Arc<Tables>>) {
        let mut state = self.state.lock();
        let State { methods, given, .. } = &mut *state;
        let before = std::mem::replace(given, tables);
        for path in [&before, &*given].into_iter().flatten().flat_map(|tables| tables.paths()) {
            methods.remove(path);
        }
    }
}

/// A backend connection that something is asked of.
struct Learning {
    objects: Weak<Objects>,
    endpoint: Arc<Endpoint>,
    attachment: Arc<Attachment>,
    group: Arc<str>,
}

impl Learning {
    fn of(backend_connection: &Attached) -> Learning {
        Learning {
            objects: Arc::downgrade(&backend_connection.objects),
            endpoint: backend_connection.endpoint.clone(),
            attachment: backend_connection.attachment.clone(),
            group: backend_connection.registration.group.clone(),
        }
    }

    /// Asks the backend connection for the tables of a method, and has its messages changed from then on.
    async fn learn(self, path: String, types: u64) {
        let Some(objects) = self.objects.upgrade() else { return };
        let (describing, holdings) = (objects.describing.clone(), objects.holdings.clone());
        drop(objects);
        let Ok(_turn) = describing.acquire().await else { return };
        let asked = describe(&self.endpoint, &self.attachment, &path, Held::nothing(holdings.as_ref())).await;
        let Some(objects) = self.objects.upgrade() else { return };
        if objects.learnt(&self.endpoint.name, &self.group, path, types, asked).await {
            self.lend().await;
        }
    }

    /// Has the backend connection's large objects placed where it reads them, if that may be.
    async fn lend(self) {
        let Learning { objects, endpoint, attachment, group } = self;
        let is_own = attachment
            .local_peer()
            .is_some_and(|backend_connection| PeerPolicy::SameUser.allows(backend_connection.identity().uid));
        if !attachment.lends() || !is_own {
            return;
        }
        let (Some(objects), backend_connection) = (objects.upgrade(), endpoint.name.clone()) else { return };
        match objects.lend(&group, &endpoint, &attachment).await {
            Ok(()) => tracing::debug!(%backend_connection, "it reads large objects where they are placed"),
            Err(reason) => tracing::debug!(%backend_connection, reason, "it gets copies of objects"),
        }
    }
}

impl Objects {
    /// Has a method's messages changed from now on, as its process has described it. Whether the backend connection is to be asked to join its group's
    /// pool: it is the first such method.
    async fn learnt(
        &self,
        name: &str,
        group: &Arc<str>,
        path: String,
        types: u64,
        asked: Result<Description, String>,
    ) -> bool {
        if let Some(Method { known: Known::Here(given), .. }) = self.state.lock().methods.get_mut(&path) {
            // The operator's table stays.
            match asked.and_then(|description| Translation::read_encodings(&description.bytes)) {
                Ok(encodings) => *given = Arc::new(Translation::clone(given).with_encodings(encodings)),
                Err(reason) => {
                    tracing::debug!(backend_connection = %name, path, reason, "compressed messages go as bytes")
                }
            }
            return false;
        }
        let read = match asked {
            Ok(description) => {
                let shelf = self.shelf(group);
                shelf.read(description, self.tables.clone(), self.holdings.clone()).await
            }
            Err(reason) => Err(reason),
        };
        let said = read.and_then(|translation| match translation.types() == types {
            true => Ok(translation),
            false => Err("the tables are of other types than the session said".to_owned()),
        });
        let mut state = self.state.lock();
        // The operator may have given tables meanwhile: the method's next call sees to it.
        let asked = state.methods.get_mut(&path).map(|method| &mut method.known);
        let Some(known) = asked.filter(|known| matches!(known, Known::Asked)) else { return false };
        match said {
            Ok(translation) => {
                tracing::debug!(backend_connection = %name, path, "its messages are handed over as objects");
                *known = Known::Here(Arc::new(self.own(translation, group)));
                !std::mem::replace(&mut state.is_asked, true)
            }
            Err(reason) => {
                if let Some(unsaid) = USELESS.turn() {
                    tracing::warn!(backend_connection = %name, path, reason, unsaid, "its messages can't be handed over as objects");
                }
                *known = Known::Useless;
                false
            }
        }
    }

    /// Asks a backend connection to join the pool of its group, and places large objects there from then on.
    async fn lend(
        &self,
        group: &Arc<str>,
        endpoint: &Arc<Endpoint>,
        attachment: &Arc<Attachment>,
    ) -> Result<(), String> {
        let place = self.places.of(group).await?;
        let invited = [(POOL, place.address.clone()), (INVITATION, place.invite()?)];
        ask(endpoint, attachment, JOIN, invited, &mut Held::nothing(self.holdings.as_ref())).await?;
        // It is asked once.
        _ = endpoint.sharing.places_in.set(place.pool.clone());
        self.state.lock().place = Some(place);
        Ok(())
    }
}

/// The description of a method, as its process tells it.
async fn describe(
    endpoint: &Arc<Endpoint>,
    attachment: &Arc<Attachment>,
    path: &str,
    mut held: Held,
) -> Result<Description, String> {
    let method = HeaderValue::from_str(path).map_err(|_| "the method's path is no header".to_owned())?;
    let mut bytes = ask(endpoint, attachment, DESCRIBE, [(METHOD, method)], &mut held).await?;
    if bytes.len() < GRPC_PREFIX_LEN {
        return Err("the answer has no message".into());
    }
    bytes.advance(GRPC_PREFIX_LEN);
    Ok(Description { bytes, _held: held })
}

/// Asks a backend connection's process for something, within a time limit: all that it answers, which is `held` from then on.
async fn ask(
    endpoint: &Arc<Endpoint>,
    attachment: &Arc<Attachment>,
    what: &'static str,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    held: &mut Held,
) -> Result<Bytes, String> {
    let picked = Picked { endpoint: endpoint.clone(), connection: Connection::Session(attachment.clone()) };
    let answer = tokio::time::timeout(PATIENCE, answer(picked, request(what, headers), held)).await;
    answer.unwrap_or_else(|_| Err(format!("the answer has taken longer than {PATIENCE:?}")))
}

async fn answer(picked: Picked, request: Request<Body>, held: &mut Held) -> Result<Bytes, String> {
    let asked = attempt(&picked, None, request).await;
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
            held.add(data.len())?;
            message.extend_from_slice(&data);
        }
    }
    Ok(message.freeze())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::gateway::shelves::tests::{description, holdings};

    #[tokio::test]
    async fn backend_connections_of_a_group_have_its_tables_and_turns_in_common() {
        let first = Objects::new(true, OnUnconvertible::default(), Conversions::default());
        let [second, other] = [(); 2].map(|()| first.anew(Conversions::default()));
        let (counted, holdings) = holdings(usize::MAX);
        let (mut turns, mut held) = (Vec::new(), Vec::new());
        // One after the other, as they come.
        for (objects, group) in [(&first, "shop"), (&second, "shop"), (&other, "other")] {
            let group = group.into();
            let read =
                objects.shelf(&group).read(description(1000), objects.tables.clone(), holdings.clone());
            turns.push(objects.own(read.await.unwrap(), &group).turns().clone());
            held.push(counted.held.load(Ordering::Relaxed));
        }
        assert!(turns[0].are(&turns[1]) && !turns[0].are(&turns[2]));
        assert_eq!((held[1], held[2]), (held[0], 2 * held[0]));
    }
}
