//! What holds for a call of a channel, whichever way it is made: where it goes, how often, and until when.

pub(crate) mod afterwards;
pub(crate) mod attempts;
pub(crate) mod deadline;
pub(crate) mod retry;
pub(crate) mod routing;
pub(crate) mod still;
pub(crate) mod turn;
