//! Reads every line of what it gets, and gives it back.

use tonic::Status;

use crate::direct::Block;
use crate::pattern;
use crate::seat::Seat;
use crate::stubs::HandleEcho;

pub(super) struct Echoing {
    seat: Seat,
}

impl Echoing {
    pub(super) fn new(seat: &Seat) -> Echoing {
        Echoing { seat: seat.clone() }
    }
}

impl HandleEcho for Echoing {
    async fn call(&self, request: Block) -> Result<Block, Status> {
        let sum = pattern::sum_lines(&request.data);
        Ok(Block { data: self.seat.pass_on(request.data)?, sum })
    }
}
