//! What is used of `nix`.

pub mod sys {
    pub mod socket {
        use crate::elsewhere::Never;
        use crate::elsewhere::rustix::io::Errno;
        use crate::fd::AsFd;

        pub trait GetSockOpt {
            type Val;
        }

        pub mod sockopt {
            use super::GetSockOpt;
            use crate::fd::OwnedFd;

            #[derive(Debug)]
            pub struct PeerCredentials;

            #[derive(Debug)]
            pub struct PeerPidfd;

            impl GetSockOpt for PeerCredentials {
                type Val = super::UnixCredentials;
            }

            impl GetSockOpt for PeerPidfd {
                type Val = OwnedFd;
            }
        }

        #[derive(Clone, Copy, Debug)]
        pub struct UnixCredentials(Never);

        impl UnixCredentials {
            pub fn pid(&self) -> i32 {
                match self.0 {}
            }

            pub fn uid(&self) -> u32 {
                match self.0 {}
            }

            pub fn gid(&self) -> u32 {
                match self.0 {}
            }
        }

        pub fn getsockopt<O: GetSockOpt>(_: &impl AsFd, _: O) -> Result<O::Val, Errno> {
            Err(Errno::NOSYS)
        }
    }
}

pub mod errno {
    pub use crate::elsewhere::rustix::io::Errno;
}
