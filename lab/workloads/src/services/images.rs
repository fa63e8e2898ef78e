//! The tiers of the image pipeline.

use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::Status;

use super::Work;
use super::codec::Recode;
use crate::direct::{ImageReply, ImageRequest, Operation};
use crate::pattern;
use crate::seat::Seat;
use crate::stubs::{HandleImages, ImagesClient};

/// Who may ask.
pub(crate) const TOKEN: &str = "a-user-of-the-workload";

/// Calls the next tier: what all but the workers do in the end.
struct Next {
    seat: Seat,
    client: ImagesClient,
}

impl Next {
    async fn at(seat: &Seat, address: &str) -> Result<Next, String> {
        Ok(Next { seat: seat.clone(), client: ImagesClient::connect(seat, address).await? })
    }

    async fn process(&self, request: ImageRequest) -> Result<ImageReply, Status> {
        let image = self.seat.pass_on(request.image)?;
        let reply = self.client.process(ImageRequest { image, ..request }).await?;
        Ok(ImageReply { image: self.seat.pass_on(reply.image)?, ..reply })
    }
}

/// Lets through who may ask.
pub(super) struct Firewall {
    next: Next,
}

impl Firewall {
    pub(super) async fn to(seat: &Seat, address: &str) -> Result<Firewall, String> {
        Ok(Firewall { next: Next::at(seat, address).await? })
    }
}

impl HandleImages for Firewall {
    async fn process(&self, request: ImageRequest) -> Result<ImageReply, Status> {
        if request.token != TOKEN {
            return Err(Status::permission_denied("the firewall doesn't know this token"));
        }
        self.next.process(request).await
    }
}

/// Gives each request to the next in turn.
pub(super) struct RoundRobin {
    to: Vec<Next>,
    turn: AtomicUsize,
}

impl RoundRobin {
    pub(super) async fn to(seat: &Seat, addresses: &[String]) -> Result<RoundRobin, String> {
        let mut to = Vec::with_capacity(addresses.len());
        for address in addresses {
            to.push(Next::at(seat, address).await?);
        }
        if to.is_empty() {
            return Err("there is nobody to balance between".to_owned());
        }
        Ok(RoundRobin { to, turn: AtomicUsize::new(0) })
    }
}

impl HandleImages for RoundRobin {
    async fn process(&self, request: ImageRequest) -> Result<ImageReply, Status> {
        let next = &self.to[self.turn.fetch_add(1, Ordering::Relaxed) % self.to.len()];
        next.process(request).await
    }
}

/// Looks at what is asked for, and has it done.
pub(super) struct Processing {
    transcoding: Next,
    compressing: Next,
}

impl Processing {
    pub(super) async fn to(seat: &Seat, transcoding: &str, compressing: &str) -> Result<Processing, String> {
        let transcoding = Next::at(seat, transcoding).await?;
        Ok(Processing { transcoding, compressing: Next::at(seat, compressing).await? })
    }
}

impl HandleImages for Processing {
    async fn process(&self, request: ImageRequest) -> Result<ImageReply, Status> {
        match request.operation() {
            Operation::Transcode => self.transcoding.process(request).await,
            Operation::Compress => self.compressing.process(request).await,
            Operation::Unspecified => Err(Status::invalid_argument("the request names no known operation")),
        }
    }
}

/// Works on images.
pub(super) struct Worker {
    seat: Seat,
    work: Work,
    recode: Recode,
}

impl Worker {
    pub(super) fn new(seat: &Seat, work: Work, recode: Recode) -> Worker {
        Worker { seat: seat.clone(), work, recode }
    }
}

impl HandleImages for Worker {
    async fn process(&self, request: ImageRequest) -> Result<ImageReply, Status> {
        match self.work {
            Work::Touch => {
                let sum = pattern::sum(&request.image);
                Ok(ImageReply { image: self.seat.pass_on(request.image)?, sum })
            }
            Work::Codec => {
                let image = self.seat.counters.codec(|| (self.recode)(&self.seat, &request.image));
                let image = image.map_err(Status::invalid_argument)?;
                Ok(ImageReply { sum: 0, image })
            }
        }
    }
}
