//! Object mode: which methods of a backend connection take objects, and the tables by which its requests are made such.
//!
//! A backend connection says with a method's first call that it takes objects of certain types. It is asked for their tables once, while calls
//! go on as bytes; from then on requests are decoded here, and answers encoded. Where it trusts the gateway, it is asked to join the pool of
//! its group, too, and reads large objects there. Each backend connection's tables are its own: what another
//! process calls by the same names has nothing to do with them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tollfree::gateway::{
    Attached, Converter, Dispatch, Held, Holdings, RateLimitedLog, Unanswered, tell_lengths,
};
use tonic::Status;
use tonic::body::Body;

use crate::conversion::asking::{self, Description};
use crate::conversion::converter::{TableConverter, no_tables};
use crate::conversion::counts::{Conversion, Conversions};
use crate::conversion::encoding::{Encodings, says_encoding};
use crate::conversion::group_pools::GroupPool;
use crate::conversion::own_tables::{Common, OwnTables};
use crate::conversion::repacking::{Repacking, Room};
use crate::conversion::tables::Tables;

/// Methods of a backend connection whose tables are kept; others' messages go as bytes.
const METHOD_COUNT_MAX: usize = 1024;
/// What is counted for a method that takes objects, beside its path, in bytes.
const METHOD_LEN: usize = 512;

static OTHER_TYPES: RateLimitedLog = RateLimitedLog::new();
static USELESS: RateLimitedLog = RateLimitedLog::new();

/// What is known of a backend connection's methods.
pub(crate) struct Objects {
    attached: Arc<Attached>,
    own: OwnTables,
    /// It is asked for one description at a time: each may be long.
    describing: Arc<Semaphore>,
    state: Mutex<State>,
}

/// How a call's messages are handed over.
enum Way {
    /// As they are: the method takes no objects, or its process has not said so yet.
    Plain,
    /// As objects, and inflated and deflated as the call says.
    Objects(Arc<TableConverter>, Option<Repacking>),
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
    Here(Arc<TableConverter>),
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
    place: Option<Arc<GroupPool>>,
}

impl Objects {
    /// Of a backend connection of which nothing is known yet.
    pub(crate) fn new(
        attached: Arc<Attached>,
        common: Arc<Common>,
        conversions: Conversions,
        holdings: Arc<dyn Holdings>,
    ) -> Arc<Objects> {
        Arc::new(Objects {
            own: OwnTables::new(attached.group(), common, conversions, holdings),
            attached,
            describing: Arc::new(Semaphore::new(1)),
            state: Mutex::default(),
        })
    }

    /// Has the backend connection answer a call, whose messages are changed for it. With `room`, compressed messages are inflated and answers deflated
    /// where the handler takes objects, unless the answer stays on this host. Without it, that is the backend's, which gets such messages as bytes.
    ///
    /// # Errors
    /// As [`Attached::hand_unless`].
    pub(crate) async fn hand(
        self: &Arc<Self>,
        dispatch: &mut Dispatch,
        room: Option<&Arc<dyn Room>>,
        withdrawn: impl Future<Output = ()> + Send,
    ) -> Result<http::Response<Body>, Unanswered> {
        let (converter, repacking, conversion) = match self.way(dispatch, room) {
            Way::Plain => (None, None, None),
            Way::Objects(converter, repacking) => (Some(converter as Arc<dyn Converter>), repacking, None),
            Way::Bytes(conversion) => (None, None, Some(conversion)),
            Way::Refused(status) => {
                return Err(Unanswered { status, may_fail_over: false, again_after: None });
            }
        };
        dispatch.convert(converter);
        let repacking = match dispatch.is_relayed() {
            true => repacking.map(Repacking::of_request),
            false => repacking,
        };
        dispatch.change_request(match (repacking.clone(), conversion) {
            (Some(repacking), _) => Some(Arc::new(move |headers, body| repacking.request(headers, body))),
            (None, Some(conversion)) => {
                let conversions = self.own.conversions().clone();
                Some(Arc::new(move |_, body| {
                    let conversions = conversions.clone();
                    tell_lengths(body, move |_, _| conversions.add(conversion))
                }))
            }
            (None, None) => None,
        });
        let answer = self.attached.hand_unless(dispatch, withdrawn).await?;
        Ok(match repacking {
            Some(repacking) => repacking.answer(answer),
            None => answer,
        })
    }

    /// How the messages of a call are handed over.
    fn way(self: &Arc<Self>, dispatch: &Dispatch, room: Option<&Arc<dyn Room>>) -> Way {
        let (path, headers) = (dispatch.path(), dispatch.headers());
        let types = if self.own.are_wanted() { self.attached.object_types(path) } else { None };
        let Some(types) = types else { return Way::Plain };
        match self.known(path, types) {
            Known::Asked => Way::Bytes(Conversion::Asked),
            Known::Here(converter) if says_encoding(headers) => {
                let Some(room) = room else { return Way::Bytes(Conversion::Compressed) };
                let Some(encodings) = converter.encodings() else {
                    self.ask_encodings(path, types, &converter);
                    return Way::Bytes(Conversion::Asked);
                };
                match Repacking::of(headers, encodings, room, self.own.conversions()) {
                    Some(repacking) => Way::Objects(converter, Some(repacking)),
                    None => Way::Bytes(Conversion::Compressed),
                }
            }
            Known::Here(converter) => Way::Objects(converter, None),
            Known::Useless if self.own.refuses_bytes() => {
                self.own.conversions().add(Conversion::NoTables);
                Way::Refused(no_tables())
            }
            Known::Useless => Way::Bytes(Conversion::NoTables),
        }
    }

    /// What is known of a method. It is asked for by the first call after the process has said that it takes objects.
    fn known(self: &Arc<Self>, path: &str, types: u64) -> Known {
        let mut state = self.state.lock();
        if let Some(method) = state.methods.get(path) {
            return method.known.clone();
        }
        let mut held = self.own.held();
        if state.methods.len() >= METHOD_COUNT_MAX || held.add(METHOD_LEN + path.len()).is_err() {
            return Known::Useless;
        }
        if let Some(converter) = self.given(&state, path, types) {
            let known = Known::Here(Arc::new(converter));
            state.methods.insert(path.to_owned(), Method { known: known.clone(), _held: held });
            if !std::mem::replace(&mut state.is_asked, true) {
                tokio::spawn(Learning::of(self).lend());
            }
            return known;
        }
        self.own.conversions().add(Conversion::First);
        state.methods.insert(path.to_owned(), Method { known: Known::Asked, _held: held });
        tokio::spawn(Learning::of(self).learn(path.to_owned(), types));
        Known::Asked
    }

    /// What the operator gave for a method, if its process has the same types.
    fn given(&self, state: &State, path: &str, types: u64) -> Option<TableConverter> {
        let given = state.given.as_ref()?.get(path)?;
        if given.types() != types {
            if let Some(unsaid) = OTHER_TYPES.turn() {
                tracing::warn!(
                    backend_connection = self.attached.name(),
                    path,
                    unsaid,
                    "the descriptors in the config are of other types than its process: it is asked for its own"
                );
            }
            return None;
        }
        Some(self.own.converter(given.clone()))
    }

    /// Asks a backend connection once how it takes and sends messages that are compressed, of which an operator's tables say nothing.
    fn ask_encodings(self: &Arc<Self>, path: &str, types: u64, converter: &TableConverter) {
        let unsaid = converter.clone().with_encodings(Encodings::default());
        if let Some(method) = self.state.lock().methods.get_mut(path) {
            method.known = Known::Here(Arc::new(unsaid));
        }
        tokio::spawn(Learning::of(self).learn(path.to_owned(), types));
    }

    /// From now on these are the operator's tables, which hold where its process has the same types. Methods of which they say something else than
    /// before are learnt anew, and calls under way go on as they are.
    pub(crate) fn use_tables(&self, tables: Option<Arc<Tables>>) {
        let mut state = self.state.lock();
        let State { methods, given, .. } = &mut *state;
        let before = std::mem::replace(given, tables);
        for path in [&before, &*given].into_iter().flatten().flat_map(|tables| tables.paths()) {
            methods.remove(path);
        }
    }
}

/// A backend connection that something is asked of, for as long as it is there.
struct Learning {
    objects: Weak<Objects>,
    attached: Arc<Attached>,
}

impl Learning {
    fn of(objects: &Arc<Objects>) -> Learning {
        Learning { objects: Arc::downgrade(objects), attached: objects.attached.clone() }
    }

    /// Asks the backend connection for the tables of a method, and has its messages changed from then on.
    async fn learn(self, path: String, types: u64) {
        let Some(objects) = self.objects.upgrade() else { return };
        let (describing, held) = (objects.describing.clone(), objects.own.held());
        drop(objects);
        let Ok(_turn) = describing.acquire().await else { return };
        let asked = asking::describe(&self.attached, &path, held).await;
        let Some(objects) = self.objects.upgrade() else { return };
        if objects.learnt(path, types, asked).await {
            self.lend().await;
        }
    }

    /// Has the backend connection's large objects placed where it reads them, if that may be.
    async fn lend(self) {
        if !self.attached.reads_in_place() {
            return;
        }
        let Some(objects) = self.objects.upgrade() else { return };
        let backend_connection = self.attached.name();
        match objects.lend().await {
            Ok(()) => tracing::debug!(backend_connection, "it reads large objects where they are placed"),
            Err(reason) => tracing::debug!(backend_connection, reason, "it gets copies of objects"),
        }
    }
}

impl Objects {
    /// Has a method's messages changed from now on, as its process has described it. Whether the backend connection is to be asked to join its group's
    /// pool: it is the first such method.
    async fn learnt(&self, path: String, types: u64, asked: Result<Description, String>) -> bool {
        let backend_connection = self.attached.name();
        if let Some(Method { known: Known::Here(given), .. }) = self.state.lock().methods.get_mut(&path) {
            // The operator's table stays.
            match asked.and_then(|description| TableConverter::read_encodings(&description.bytes)) {
                Ok(encodings) => *given = Arc::new(TableConverter::clone(given).with_encodings(encodings)),
                Err(reason) => {
                    tracing::debug!(backend_connection, path, reason, "compressed messages go as bytes")
                }
            }
            return false;
        }
        let read = match asked {
            Ok(description) => self.own.read(description).await,
            Err(reason) => Err(reason),
        };
        let said = read.and_then(|converter| match converter.types() == types {
            true => Ok(converter),
            false => Err("the tables are of other types than the session said".to_owned()),
        });
        let mut state = self.state.lock();
        // The operator may have given tables meanwhile: the method's next call sees to it.
        let asked = state.methods.get_mut(&path).map(|method| &mut method.known);
        let Some(known) = asked.filter(|known| matches!(known, Known::Asked)) else { return false };
        match said {
            Ok(converter) => {
                tracing::debug!(backend_connection, path, "its messages are handed over as objects");
                *known = Known::Here(Arc::new(self.own.converter(converter)));
                !std::mem::replace(&mut state.is_asked, true)
            }
            Err(reason) => {
                if let Some(unsaid) = USELESS.turn() {
                    tracing::warn!(
                        backend_connection,
                        path,
                        reason,
                        unsaid,
                        "its messages can't be handed over as objects"
                    );
                }
                *known = Known::Useless;
                false
            }
        }
    }

    /// Asks a backend connection to join the pool of its group, and places large objects there from then on.
    async fn lend(&self) -> Result<(), String> {
        let place = self.own.place().await?;
        asking::join(&self.attached, &place, self.own.held()).await?;
        self.attached.place_objects_in(place.pool.clone());
        self.state.lock().place = Some(place);
        Ok(())
    }
}
