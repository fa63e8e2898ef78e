//! The business process' handlers: busy for a while, then the same message back.

use std::time::{Duration, Instant};

use tonic::{Request, Response, Status};

use crate::direct::split_server::Split as DirectSplit;
use crate::hyperprotobench::{M3, M34, M43};
use crate::proto::Bytes;
use crate::proto::split_server::Split;

/// Handles calls.
pub(super) struct Business {
    pub(super) busy: Duration,
}

impl Business {
    /// What business does: it keeps its core.
    fn handle<M>(&self, request: Request<M>) -> Result<Response<M>, Status> {
        if !self.busy.is_zero() {
            let until = Instant::now() + self.busy;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        Ok(Response::new(request.into_inner()))
    }
}

/// Both kinds of stubs have the same methods.
macro_rules! handle {
    ($($service:ident),+) => { $(
        #[tonic::async_trait]
        impl $service for Business {
            async fn echo64(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
                self.handle(request)
            }

            async fn m3(&self, request: Request<M3>) -> Result<Response<M3>, Status> {
                self.handle(request)
            }

            async fn m43(&self, request: Request<M43>) -> Result<Response<M43>, Status> {
                self.handle(request)
            }

            async fn m34(&self, request: Request<M34>) -> Result<Response<M34>, Status> {
                self.handle(request)
            }
        }
    )+ };
}

handle!(Split, DirectSplit);
