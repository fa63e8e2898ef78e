//! The backend' handlers: busy for a while, then the same message back. Of a message with many fields each is read, and
//! the reply is made anew.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tonic::{Request, Response, Status};

use crate::direct::split_server::Split as DirectSplit;
use crate::fds::FileDescriptorSet;
use crate::hyperprotobench::{M3, M34, M43};
use crate::message::Read;
use crate::proto::Bytes;
use crate::proto::split_server::Split;
use crate::shop::Order;

/// Handles calls.
pub(super) struct Backends {
    pub(super) busy: Duration,
}

impl Backends {
    /// What application code does: it keeps its core.
    pub(super) fn work(&self) {
        if !self.busy.is_zero() {
            let until = Instant::now() + self.busy;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }

    fn handle<M: Read + Clone>(&self, request: &Request<M>) -> Result<Response<M>, Status> {
        self.work();
        black_box(request.get_ref().read());
        // A copy takes the same allocations as building the struct does.
        Ok(Response::new(request.get_ref().clone()))
    }
}

/// Both kinds of stubs have the same methods.
macro_rules! handle {
    ($($service:ident),+) => { $(
        #[tonic::async_trait]
        impl $service for Backends {
            async fn echo64(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
                self.work();
                Ok(Response::new(request.into_inner()))
            }

            async fn m3(&self, request: Request<M3>) -> Result<Response<M3>, Status> {
                self.handle(&request)
            }

            async fn m43(&self, request: Request<M43>) -> Result<Response<M43>, Status> {
                self.handle(&request)
            }

            async fn m34(&self, request: Request<M34>) -> Result<Response<M34>, Status> {
                self.handle(&request)
            }

            async fn order(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
                self.handle(&request)
            }

            async fn fds(
                &self,
                request: Request<FileDescriptorSet>,
            ) -> Result<Response<FileDescriptorSet>, Status> {
                self.handle(&request)
            }
        }
    )+ };
}

handle!(Split, DirectSplit);
