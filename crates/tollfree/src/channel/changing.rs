//! Channels whose endpoints come and go while they are used.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use tokio::sync::mpsc;
use tollfree_transport::Config;
use tower::discover::Change;

use crate::call::routing::{Changes, Routing};
use crate::channel::{Channel, ChannelBuilder};
use crate::endpoint;
use crate::endpoint::balance::Balance;
use crate::endpoint::error::ChannelError;
use crate::endpoint::http2::{Http2, is_http2};
use crate::endpoint::place::{Files, Place};
use crate::endpoint::upgrade::Plan;
use crate::http::shortcut;
use crate::message::payloads::Sharing;

/// The address of a server that a channel may use: for [`Channel::balance_channel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Of any kind: `shm:///path`, `shm-abstract:name`, `unix:/path`, `http://host:port` or `https://host:port`; for channels
    /// [`via`](ChannelBuilder::via) shepherds, `device+tls://host:port`.
    ///
    /// # Errors
    /// [`ChannelError`] for what is none of these.
    pub fn from_shared(uri: impl Into<String>) -> Result<Endpoint, ChannelError> {
        let uri = uri.into();
        if is_http2(&uri) {
            let checked = tonic::transport::Endpoint::from_shared(uri.clone());
            checked.map_err(|source| ChannelError::Http2 { address: uri.clone(), source })?;
        } else {
            Place::check(&uri)?;
        }
        Ok(Endpoint(uri))
    }

    /// As it was given.
    pub fn uri(&self) -> &str {
        &self.0
    }
}

/// Makes endpoints with a channel's settings.
pub(crate) struct Maker {
    /// Endpoints ask their shepherds for shortcuts.
    pub(super) shortcuts: bool,
    pub(crate) settings: Config,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) plan: Plan,
    pub(crate) http2: Http2,
    pub(super) files: Files,
}

impl Maker {
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub(crate) fn make(&self, uri: &str) -> Result<Arc<endpoint::Endpoint>, ChannelError> {
        let Maker { settings, sharing, plan, http2, files, .. } = self;
        let made = endpoint::Endpoint::new(uri, settings, sharing, plan, http2, files)?;
        Ok(if self.shortcuts { made.asking(shortcut::keep) } else { Arc::new(made) })
    }
}

impl Channel {
    /// A channel without endpoints, and what inserts and removes some while it is used, as tonic's. A call goes to the endpoint
    /// with the fewest calls under way, and waits while there is none. [`ChannelBuilder::balance_channel`] makes one with
    /// settings. Must be called in a tokio runtime.
    ///
    /// # Example
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollfree::{Change, Channel, Endpoint};
    ///
    /// let (channel, endpoints) = Channel::balance_channel(16);
    /// endpoints.send(Change::Insert("a", Endpoint::from_shared("shm:///run/app/a.sock")?)).await?;
    /// // let mut client = GreeterClient::new(channel);
    /// endpoints.send(Change::Remove("a")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime, or with a `capacity` of 0, as tonic's.
    pub fn balance_channel<K>(capacity: usize) -> (Channel, mpsc::Sender<Change<K, Endpoint>>)
    where
        K: Hash + Eq + Send + Clone + 'static,
    {
        let builder = ChannelBuilder::default().balance(Balance::LeastOutstanding);
        builder.balance_channel(capacity).expect("there is no setting that could be wrong")
    }
}

impl ChannelBuilder {
    /// A channel that connects at the first call, and what inserts further endpoints and removes them while it is used. Those that
    /// the builder was given stay. `capacity`: changes that may wait to be taken up.
    ///
    /// A key that is inserted again gets the new endpoint in the place of the old one. Calls under way at an endpoint that
    /// is removed go on. One that the channel's settings don't allow, such as `https://` without `tls_config`, is not
    /// inserted; the log says why. Endpoints stay as they are when the sender is dropped. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or with a `capacity` of 0.
    pub fn balance_channel<K>(
        self,
        capacity: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<K, Endpoint>>), ChannelError>
    where
        K: Hash + Eq + Send + Clone + 'static,
    {
        let (channel, maker) = self.make(true)?;
        let (sender, changes) = mpsc::channel(capacity);
        let task = tokio::spawn(take_up(changes, channel.downgrade(), maker));
        channel.change(Changes(task.abort_handle()));
        Ok((channel, sender))
    }
}

/// Takes up changes until there are no more.
async fn take_up<K: Hash + Eq>(
    mut changes: mpsc::Receiver<Change<K, Endpoint>>,
    channel: Weak<Routing>,
    maker: Maker,
) {
    let mut endpoints = HashMap::new();
    while let Some(change) = changes.recv().await {
        let Some(channel) = channel.upgrade() else { return };
        match change {
            Change::Insert(key, Endpoint(uri)) => match maker.make(&uri) {
                Ok(endpoint) => {
                    let old = endpoints.insert(key, endpoint.clone());
                    channel.balancer.insert(endpoint, old.as_ref());
                }
                Err(error) => tracing::error!(address = %uri, %error, "not inserted into a channel"),
            },
            Change::Remove(key) => {
                if let Some(old) = endpoints.remove(&key) {
                    channel.balancer.remove(&old);
                }
            }
        }
    }
}
