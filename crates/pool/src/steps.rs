//! Named points in the life of a member, at which a test can have its process killed.

/// Kills this process here, if the environment says so; nothing at all without the feature `steps`.
#[inline(always)]
pub(crate) fn reached(step: &'static str) {
    #[cfg(feature = "steps")]
    inner::reached(step);
    #[cfg(not(feature = "steps"))]
    let _ = step;
}

/// Every step, in the order in which a member that shares and one that reads come to them, and a coordinator.
#[cfg(feature = "steps")]
pub const STEPS: [&str; 24] = [
    "joined",
    "granted",
    "extent-made",
    "extent-known",
    "allocated",
    "exported",
    "map-asked",
    "mapped",
    "row-made",
    "watched",
    "counted-in",
    "held",
    "overlaid",
    "overlay-copied",
    "released",
    "given-up",
    "told-join",
    "told-need",
    "told-extent",
    "told-map",
    "told-give",
    "told-row",
    "told-row-ok",
    "told-returned",
];

#[cfg(feature = "steps")]
mod inner {
    use std::sync::OnceLock;

    use tollfree_os::rustix;

    static DIE_AT: OnceLock<Option<String>> = OnceLock::new();

    pub(super) fn reached(step: &'static str) {
        let die_at = DIE_AT.get_or_init(|| std::env::var("TOLLFREE_POOL_DIE_AT").ok());
        if die_at.as_deref() == Some(step) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
