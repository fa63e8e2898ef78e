//! What goes wrong while a handler builds or converts a message, as the status of its call. (The types of both sides are of other
//! crates than `tollfree`, which has all else of this kind, so it stands here.)

use crate::builder::BuildError;
use crate::typed::ProstError;
use tonic::Status;

impl From<BuildError> for Status {
    /// RESOURCE_EXHAUSTED if the arena is full, INTERNAL for all else: a message that is nested too deep, or parts of another
    /// schema.
    fn from(error: BuildError) -> Status {
        let text = error.to_string();
        match error {
            BuildError::Exhausted { .. } => Status::resource_exhausted(text),
            _ => Status::internal(text),
        }
    }
}

impl From<ProstError> for Status {
    /// INVALID_ARGUMENT: the message that came has a string that is not UTF-8.
    fn from(error: ProstError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_full_arena_is_resource_exhausted() {
        let full = Status::from(BuildError::Exhausted { need: 100, limit: 64 });
        assert_eq!(full.code(), Code::ResourceExhausted);
        assert_eq!(full.message(), "the builder's arena is exhausted: 100 bytes are needed, its limit is 64");
        let deep = BuildError::Depth { path: "shop.Order.next".to_owned(), limit: 100 };
        assert_eq!(Status::from(deep).code(), Code::Internal);
        let text = ProstError::Utf8 { path: "shop.Order.name".to_owned() };
        assert_eq!(Status::from(text).code(), Code::InvalidArgument);
    }
}
