//! Watching the health of channels' servers: a call of the loop's own in each session, which the application is told nothing of.

use tollfree_os::clock::now_ns;

use crate::channel::{Due, Health, NextWatch, UNIMPLEMENTED, WATCH, Watch, health_request};
use crate::event_loop::channels::CANCELLED;
use crate::{CallId, CallStart, ChannelId, Event, EventLoop, SessionId};

impl EventLoop {
    /// Watches a server, if the channel checks health.
    pub(super) fn watch(&mut self, next: NextWatch) {
        let NextWatch { channel, endpoint, session, failures } = next;
        let Some(found) = self.channels.channel(channel) else { return };
        let Some(service) = found.health_service() else { return };
        if found.endpoint(endpoint).session() != Some(session) {
            return;
        }
        let message = Some(health_request(service));
        let start = CallStart { message, is_last: true, ..CallStart::new(WATCH) };
        // A session that takes no calls any more has its event on the way.
        if let Ok(call) = self.call(session, start) {
            self.channels.watch_begins(call, Watch::new(channel, endpoint, failures));
        }
    }

    /// Sees to an event of a watch. Others are given back.
    pub(super) fn pass_watch(&mut self, event: Event) -> Option<Event> {
        let call = match &event {
            Event::Headers { call, .. }
            | Event::Message { call, .. }
            | Event::Sent { call }
            | Event::Ended { call, .. } => *call,
            _ => return Some(event),
        };
        if !self.channels.has_watch(call) {
            return Some(event);
        }
        match event {
            Event::Message { message, .. } => {
                if let Some((watch, address, service)) = self.channels.watched(call) {
                    let health = watch.answered(&message, &address, &service);
                    let (channel, endpoint) = (watch.channel, watch.endpoint);
                    self.settle(channel, endpoint, call.session(), health);
                }
            }
            Event::Ended { status, .. } => {
                let (_, address, service) = self.channels.watched(call)?;
                let watch = self.channels.watch_ends(call)?;
                let (channel, endpoint, session) = (watch.channel, watch.endpoint, call.session());
                if status.code == UNIMPLEMENTED {
                    self.settle(channel, endpoint, session, Health::Serving);
                    return None;
                }
                let (health, failures, pause) = watch.ended(&status, &address, &service);
                let next = NextWatch { channel, endpoint, session, failures };
                self.due_at(now_ns() + pause.as_nanos() as u64, Due::Watch(next));
                self.settle(channel, endpoint, session, health);
            }
            _ => {}
        }
        None
    }

    /// Notes what is known of a server, and has calls that wait look again.
    fn settle(&mut self, channel: ChannelId, endpoint: usize, session: SessionId, health: Health) {
        let Some(found) = self.channels.channel_mut(channel) else { return };
        if found.endpoint(endpoint).session() == Some(session) {
            found.endpoint_mut(endpoint).settle(health);
            self.place_waiting(channel);
        }
    }

    /// Ends the watch in a session that takes no calls any more.
    pub(super) fn end_watch(&mut self, session: SessionId) {
        if let Some(call) = self.channels.watch_in(session) {
            self.stop_watch(call);
        }
    }

    /// Ends a watch: no event follows.
    pub(super) fn stop_watch(&mut self, call: CallId) {
        self.channels.watch_ends(call);
        self.cancel(call, CANCELLED);
    }
}
