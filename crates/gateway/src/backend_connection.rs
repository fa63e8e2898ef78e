//! One session of a backend, in which calls go to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use http::Response;
use parking_lot::Mutex;
use tollfree::gateway::{Announced, Attached, CallRules, Dispatch, Unanswered};
use tollfree_control::{BackendConnectionState, ConnectionState};
use tonic::body::Body;

use crate::conversion::{Objects, Room, Tables};
use crate::hang::Hang;
use crate::health_check::Wellness;
use crate::load_balancing::{Dispatcher, Load};
use crate::outliers::Conduct;
use crate::peer::Peer;

/// A call that is handed to backend connections, and the room of its messages where they are inflated and deflated here.
pub(crate) struct Handover {
    dispatch: Dispatch,
    room: Option<Arc<dyn Room>>,
}

impl Handover {
    /// A call that is made again where `rules` say so.
    pub(crate) fn new(
        mut dispatch: Dispatch,
        room: Option<Arc<dyn Room>>,
        rules: Option<Arc<CallRules>>,
    ) -> Handover {
        dispatch.rules(rules);
        Handover { dispatch, room }
    }
}

/// A backend connection that is attached: one session of a backend.
pub(crate) struct BackendConnection {
    attached: Arc<Attached>,
    /// What is known of its methods.
    objects: Arc<Objects>,
    dispatcher: Arc<Dispatcher>,
    since: Instant,
    load: Load,
    /// Calls that its process takes at once.
    places: u32,
    calls: AtomicU64,
    /// What was announced to it, as far as that is counted.
    announced: Mutex<Announced>,
    /// It takes no new calls, and is about to be removed.
    is_leaving: AtomicBool,
    hang: Hang,
    wellness: Wellness,
    conduct: Arc<Conduct>,
}

impl BackendConnection {
    pub(crate) fn new(
        attached: Arc<Attached>,
        objects: Arc<Objects>,
        dispatcher: Arc<Dispatcher>,
        id: u64,
    ) -> BackendConnection {
        BackendConnection {
            places: attached.call_count_max(),
            attached,
            objects,
            dispatcher,
            since: Instant::now(),
            load: Load::new(id),
            calls: AtomicU64::new(0),
            announced: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            hang: Hang::default(),
            wellness: Wellness::default(),
            conduct: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> BackendConnectionState {
        let peer = self.attached.process().identity;
        BackendConnectionState {
            id: self.connection_id(),
            remote: self.attached.remote().map(|remote| format!("{} at {}", remote.subject, remote.address)),
            pid: peer.pid,
            uid: peer.uid,
            backend_connection: self.attached.backend_connection(),
            services: self.attached.services().to_vec(),
            outstanding: self.load.outstanding(),
            calls: self.calls.load(Ordering::Relaxed),
            gets_no_calls: !self.takes_calls() || self.conduct.is_ejected(),
            attached_ms: self.since.elapsed().as_millis() as u64,
        }
    }

    /// By which its session is closed.
    pub(crate) fn connection_id(&self) -> String {
        format!("w{}", self.load.id())
    }

    /// Its session, as one of the gateway's connections.
    pub(crate) fn connection(&self) -> ConnectionState {
        ConnectionState {
            id: self.connection_id(),
            kind: "backend_connection".to_owned(),
            place: self.group().to_owned(),
            peer: format!(
                "{:?}, backend connection {}",
                Peer::of_attached(&self.attached),
                self.attached.backend_connection()
            ),
            open_ms: self.since.elapsed().as_millis() as u64,
            calls: self.load.outstanding(),
            calls_total: self.calls.load(Ordering::Relaxed),
            received_bytes: None,
            sent_bytes: None,
            is_closing: self.is_leaving.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn attached(&self) -> &Attached {
        &self.attached
    }

    pub(crate) fn group(&self) -> &str {
        self.attached.group()
    }

    /// Who decides for its group which calls come here.
    pub(crate) fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Calls under way, and what its process said of its load.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// Calls that its process takes at once.
    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    /// A call begins here.
    pub(crate) fn call_begins(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Has it answer a call, whose messages are changed for it.
    ///
    /// # Errors
    /// [`Unanswered`]; where the call may be failed over, this backend connection hangs, or gets no further one.
    pub(crate) async fn hand(&self, handover: &mut Handover) -> Result<Response<Body>, Unanswered> {
        let (dispatch, room) = (&mut handover.dispatch, handover.room.as_ref());
        dispatch.count_in(self.conduct.record());
        let handed = self.objects.hand(dispatch, room, self.hang.hung()).await;
        if handed.as_ref().is_err_and(|unanswered| unanswered.may_fail_over) && !self.attached.is_open() {
            self.is_leaving.store(true, Ordering::Relaxed);
        }
        handed
    }

    /// Its methods' messages are changed by the operator's tables from now on.
    pub(crate) fn use_tables(&self, tables: Option<Arc<Tables>>) {
        self.objects.use_tables(tables);
    }

    /// It takes no new calls, and is about to be removed.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Whether it hangs, as far as that is known.
    pub(crate) fn hang(&self) -> &Hang {
        &self.hang
    }

    /// What its health checks say.
    pub(crate) fn wellness(&self) -> &Wellness {
        &self.wellness
    }

    /// How its calls end.
    pub(crate) fn conduct(&self) -> &Arc<Conduct> {
        &self.conduct
    }

    /// Whether others should rather have calls: it stands still at the moment, or its calls fail.
    pub(crate) fn is_second_choice(&self) -> bool {
        self.hang.stands_still() || self.conduct.is_ejected()
    }

    /// Whether it gets new calls.
    pub(crate) fn takes_calls(&self) -> bool {
        self.is_member() && !self.hang.is_hung()
    }

    /// Whether it gets calls, or will when it does not hang any more.
    pub(crate) fn is_member(&self) -> bool {
        !self.is_leaving() && !self.wellness.is_unhealthy()
    }

    /// How metrics and the access log call it: its process and its number there.
    pub(crate) fn label(&self) -> String {
        let number = self.attached.backend_connection();
        match self.attached.remote() {
            Some(remote) => format!("{} at {}/{number}", remote.subject, remote.address),
            None => format!("{}/{number}", self.attached.process().identity.pid),
        }
    }

    /// Gives `count` what was announced up to the last time, and up to now.
    pub(crate) fn count_announced<R>(&self, count: impl FnOnce(&Announced, &Announced) -> R) -> R {
        let mut counted = self.announced.lock();
        let before = std::mem::replace(&mut *counted, self.attached.announced());
        count(&before, &counted)
    }
}
