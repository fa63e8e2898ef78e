//! Calls that are a frame each way: asked, answered and replied to without a stream, unless something else happens first.

use bytes::Bytes;
use tollfree_session::{Accepted, Chunk, Emission, End, Ending, Opening, Request, Role};

use super::call::Call;
use super::world::{Step, World};

impl World {
    /// Sends a request as a whole, if it is one and the session can. Whether it was sent.
    pub(crate) fn ask(&mut self, call: &mut Call) -> Result<bool, String> {
        let emission = &call.client.emission;
        let (Some(headers), Some(message), Some(_)) =
            (&emission.headers, &emission.message, &emission.ending)
        else {
            return Ok(false);
        };
        let Some(message) = message.as_plain() else { return Ok(false) };
        let among = self.rng.one_in(3);
        let opening = Opening { path: call.path, deadline_ns: call.deadline_ns };
        let (session, out) = (&mut self.client.session, &mut self.client.out);
        let asked = match among {
            true => session.ask_among(out, opening, headers, message),
            false => session.ask(out, opening, headers, message),
        };
        out.publish();
        match asked {
            None => Ok(false),
            Some(id) if id != call.id => Err(format!("asked {id}, expected {}", call.id)),
            Some(_) => {
                call.client.emission = Emission::default();
                call.client.note(true);
                self.asked = (!among).then_some(self.calls.len());
                self.say(|| format!("asked {}", call.id));
                self.see("asked");
                Ok(true)
            }
        }
    }

    /// Looks whether the call that was asked is answered.
    pub(crate) fn hear(&mut self) -> Step {
        let Some(idx) = self.asked else { return Ok(()) };
        let call = &mut self.calls[idx];
        let id = call.id;
        let Some(answer) = self.client.session.answer(id) else {
            if !self.client.session.is_aside(id) {
                self.asked = None;
                self.see("kept by another frame");
            }
            return Ok(());
        };
        let said = &call.server;
        let Ending::Trailers { code: 0, block } = &said.ending else {
            return Err(format!("{id} is answered, and was not to be"));
        };
        let fits = said.done
            && said.plan.len() == 1
            && *answer.headers() == *call.reply_headers
            && *answer.message() == *said.message(id.0, 0)
            && *answer.trailers() == **block;
        if !fits {
            return Err(format!("{id}: {answer:?} is not what was said"));
        }
        call.client_hears.heard_count = 1;
        call.client_hears.end = Some(End::Trailers { code: 0, block: block.clone() });
        call.client_forgot = true;
        self.asked = None;
        self.moves += 1;
        self.say(|| format!("{id} is answered"));
        self.see("answered");
        Ok(())
    }

    /// The server has got a request as a whole.
    pub(crate) fn take_whole(&mut self, request: Request) -> Step {
        let Request { id, method, deadline_ns, whole } = request;
        let headers = Bytes::copy_from_slice(whole.headers());
        self.take_accepted(Accepted { id, method: Some(method), path: None, deadline_ns, headers })?;
        let idx = id.0 as usize - 1;
        let call = &mut self.calls[idx];
        let chunk = Chunk::whole(whole.into_prefixed());
        call.server_hears.chunk(id.0, &call.client, &chunk)?;
        if !call.client.done || !call.server_hears.is_complete(&call.client) {
            return Err(format!("{id} came as a whole, and is none"));
        }
        call.server_hears.end = Some(End::HalfClosed);
        self.answering = Some(idx);
        self.see("came as a whole");
        // Mostly it is answered before anything else happens.
        if self.rng.one_in(2) { self.send(Role::Server, idx) } else { Ok(()) }
    }

    /// Replies as a whole to the call that came so, if that is possible. Whether everything is said thereby.
    pub(crate) fn reply(&mut self, idx: usize) -> bool {
        if self.answering != Some(idx) {
            return false;
        }
        self.answering = None;
        let call = &mut self.calls[idx];
        let id = call.id;
        call.server.fill(id.0, true);
        let emission = &call.server.emission;
        if let (Some(headers), Some(message)) = (&emission.headers, &emission.message)
            && let Some(Ending::Trailers { code: 0, block }) = &emission.ending
            && block.is_empty()
            && let Some(message) = message.as_plain()
            && self.server.session.reply(&mut self.server.out, id, headers, message)
        {
            self.server.out.publish();
            call.server.emission = Emission::default();
            call.server.note(true);
            call.server_forgot = true;
            self.say(|| format!("replied to {id}"));
            self.see("replied");
            return true;
        }
        // What waited may be staged, though the reply was not.
        self.server.out.publish();
        self.server.session.keep();
        self.see("kept by the server");
        false
    }

    /// Has the call go on as every other, if it is aside.
    pub(crate) fn keep(&mut self, role: Role, idx: usize) {
        let aside = match role {
            Role::Client => &mut self.asked,
            Role::Server => &mut self.answering,
        };
        if aside.take_if(|aside| *aside == idx).is_some() {
            self.side(role).session.keep();
        }
    }
}
