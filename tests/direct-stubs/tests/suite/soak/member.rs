//! A bare member of the pool: shares, holds, passes on, and checks what it holds again and again.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use tollfree::pool::{AllocError, Pool, REF_LEN, Ref, RefError, Refusal};
use tollfree_testkit::Role;

use super::content::Stamp;
use super::station::Station;

const SHARED_COUNT: u64 = 6;
const HELD_COUNT: u64 = 16;

struct Member {
    station: Station,
    pool: Pool,
    letterbox: UnixDatagram,
    shared: Vec<Ref>,
    held: Vec<Ref>,
    is_fine: bool,
}

impl Member {
    /// Another member's letterbox, which may belong to one that is dead.
    fn other(&mut self) -> Option<PathBuf> {
        let own = format!("member-{}.letters", self.station.id);
        let entries = std::fs::read_dir(&self.station.directory).unwrap().flatten();
        let others: Vec<PathBuf> = entries
            .filter(|entry| {
                entry.file_name().to_str().is_some_and(|name| name.ends_with(".letters") && name != own)
            })
            .map(|entry| entry.path())
            .collect();
        (!others.is_empty()).then(|| others[self.station.chance.below(others.len() as u64) as usize].clone())
    }

    fn send(&mut self, bytes: &Ref) {
        let Some(other) = self.other() else { return };
        match self.letterbox.send_to(&bytes.to_bytes().unwrap(), &other) {
            Ok(_) => {}
            // It doesn't read, or is gone.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => drop(std::fs::remove_file(&other)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => panic!("a ref can't be sent to {}: {error}", other.display()),
        }
    }

    fn share(&mut self) {
        let (len, stamp) = (self.station.len(), self.station.stamp());
        match self.pool.try_buffer(len) {
            Ok(mut buffer) => {
                stamp.write(buffer.resize_zeroed(len));
                let bytes = buffer.freeze().unwrap();
                self.send(&bytes);
                self.shared.push(bytes);
            }
            Err(AllocError::Exhausted { .. }) => drop(self.shared.pop()),
            Err(error) => panic!("no memory for {len} bytes: {error}"),
        }
        if self.shared.len() as u64 > SHARED_COUNT {
            let at = self.station.chance.below(SHARED_COUNT) as usize;
            self.shared.swap_remove(at);
        }
    }

    fn take(&mut self) {
        let is_calm = self.station.is("calm");
        let mut letter = [0; REF_LEN];
        match self.letterbox.recv(&mut letter) {
            Ok(len) => assert_eq!(len, REF_LEN),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        match self.pool.map_ref(&letter) {
            Ok(bytes) => {
                Stamp::read(&bytes, self.station.seed);
                self.held.push(bytes);
                if is_calm && !self.is_fine {
                    self.is_fine = true;
                    self.station.say("fine-0");
                }
            }
            // Its sender has let go of it, or its owner or the coordinator is dead, cut off or stopped.
            Err(RefError::Stale | RefError::Gone | RefError::Coordinator | RefError::Timeout(_)) => {}
            Err(RefError::Refused(Refusal::Busy | Refusal::Gone)) => {}
            Err(error) => panic!("a ref can't be mapped: {error}"),
        }
        if self.held.len() as u64 > HELD_COUNT {
            let at = self.station.chance.below(HELD_COUNT) as usize;
            self.held.swap_remove(at);
        }
    }

    fn turn(&mut self) {
        match self.station.chance.below(6) {
            0 => self.share(),
            1 | 2 => self.take(),
            kind if !self.held.is_empty() => {
                let at = self.station.chance.below(self.held.len() as u64) as usize;
                Stamp::read(&self.held[at], self.station.seed);
                match kind {
                    3 => drop(self.held.swap_remove(at)),
                    4 => {
                        let bytes = self.held[at].clone();
                        self.send(&bytes);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

pub(crate) fn run(role: &Role) {
    let station = Station::new(role);
    let pool = station.join();
    let path = station.directory.join(format!("member-{}.letters", station.id));
    let letterbox = UnixDatagram::bind(&path).unwrap();
    letterbox.set_nonblocking(true).unwrap();
    let (shared, held) = (Vec::new(), Vec::new());
    let mut member = Member { station, pool, letterbox, shared, held, is_fine: false };
    while !member.station.is("over") {
        member.turn();
    }
    for bytes in member.held.drain(..).chain(member.shared.drain(..)) {
        Stamp::read(&bytes, member.station.seed);
    }
    let Member { station, pool, .. } = member;
    station.drain(&pool, || ());
}
