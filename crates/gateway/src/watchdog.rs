//! What systemd is told: ready, stopping, and alive.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(state: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell, and that is no error.
    if let Err(error) = sd_notify::notify(false, state) {
        tracing::warn!(%error, "the service manager can't be told how the gateway is");
    }
}

pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says that the runtime still runs, as often as the service manager wants it.
pub(crate) async fn feed() {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return;
    }
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(Duration::from_micros(micros / 3)).await;
    }
}
