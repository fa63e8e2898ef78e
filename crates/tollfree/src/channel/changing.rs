//! Channels whose endpoints come and go while they are used.

use std::hash::Hash;
use std::sync::{Arc, Weak};

use tokio::sync::mpsc;
use tollfree_balancer::{Record, Target};
use tollfree_driver_tokio::Config;
use tower::discover::Change;

use crate::call::routing::{Changes, Routing};
use crate::channel::{Channel, ChannelBuilder};
use crate::endpoint;
use crate::endpoint::balance::Balance;
use crate::endpoint::error::ChannelError;
use crate::endpoint::http2::{Http2Settings, is_http2};
use crate::endpoint::place::{Files, Place};
use crate::endpoint::upgrade::Plan;
use crate::http::direct_connection;
use crate::message::payloads::Sharing;

/// A server that a channel may use: for [`Channel::balance_channel`] and [`ChannelBuilder::endpoints`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Target);

impl Endpoint {
    /// Of any kind: `shm:///path`, `shm-abstract:name`, `unix:/path`, `http://host:port` or `https://host:port`; for channels
    /// [`via`](ChannelBuilder::via) gateways, `device+tls://host:port`.
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
        Ok(Endpoint(Target::new(uri)))
    }

    /// As it was given.
    pub fn uri(&self) -> &str {
        &self.0.address
    }

    /// Its share of the calls beside the other endpoints of its priority; 1 unless this says otherwise. One of weight 0 gets none. `PickFirst`
    /// knows no other weights.
    pub fn weight(self, weight: u32) -> Endpoint {
        Endpoint(Target { weight, ..self.0 })
    }

    /// The priority that it belongs to: 0, the highest, unless this says otherwise. Calls go to the highest priority of which an endpoint can
    /// be used, and wait for one that is being connected. When all of a priority fail, they go to the next, and back when one can be used again.
    ///
    /// # Example
    /// ```
    /// # fn example() -> Result<(), tollfree::ChannelError> {
    /// use tollfree::{Balance, ChannelBuilder, Endpoint};
    ///
    /// let near = ["shm:///run/app/a.sock", "shm:///run/app/b.sock"].map(Endpoint::from_shared);
    /// let far = Endpoint::from_shared("http://localhost:50051")?.priority(1);
    /// let channel = ChannelBuilder::default()
    ///     .endpoints(near.into_iter().collect::<Result<Vec<_>, _>>()?)
    ///     .endpoints([far])
    ///     .balance(Balance::RoundRobin)
    ///     .connect_lazy()?;
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn priority(self, priority: u32) -> Endpoint {
        Endpoint(Target { priority, ..self.0 })
    }

    pub(super) fn into_target(self) -> Target {
        self.0
    }
}

/// Makes endpoints with a channel's settings.
pub(crate) struct Maker {
    /// Endpoints ask their gateways for direct connections.
    pub(super) direct_connections: bool,
    pub(crate) settings: Config,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) plan: Plan,
    pub(crate) http2: Http2Settings,
    pub(super) files: Files,
}

impl Maker {
    /// # Errors
    /// [`ChannelError`] for an address or a setting that can't be meant.
    pub(crate) fn make(
        &self,
        uri: &str,
        record: Option<&Arc<Record>>,
    ) -> Result<Arc<endpoint::Subchannel>, ChannelError> {
        let Maker { settings, sharing, plan, http2, files, .. } = self;
        let made = endpoint::Subchannel::new(uri, settings, sharing, plan, http2, files)?.counting(record);
        Ok(if self.direct_connections { made.asking(direct_connection::keep) } else { Arc::new(made) })
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
    /// A key that is inserted again gets the new endpoint in the place of the old one; if its address is the same, its connection stays. Calls under way at an endpoint that
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
        let fixed = self.targets.clone();
        let (channel, maker) = self.make(true)?;
        let (sender, changes) = mpsc::channel(capacity);
        let task = tokio::spawn(take_up(changes, fixed, channel.downgrade(), maker));
        channel.change(Changes(task.abort_handle()));
        Ok((channel, sender))
    }
}

/// Takes up changes until there are no more: each makes another list, which takes the place of the one before.
async fn take_up<K: Eq + Clone>(
    mut changes: mpsc::Receiver<Change<K, Endpoint>>,
    fixed: Vec<Target>,
    channel: Weak<Routing>,
    maker: Maker,
) {
    let mut inserted: Vec<(K, Target)> = Vec::new();
    while let Some(change) = changes.recv().await {
        let Some(channel) = channel.upgrade() else { return };
        let mut next = inserted.clone();
        let place = |wanted: &K| inserted.iter().position(|(key, _)| key == wanted);
        let address = match change {
            Change::Insert(key, Endpoint(target)) => {
                let address = target.address.clone();
                match place(&key) {
                    Some(place) => next[place].1 = target,
                    None => next.push((key, target)),
                }
                address
            }
            Change::Remove(key) => {
                let Some(place) = place(&key) else { continue };
                next.remove(place).1.address
            }
        };
        let targets = fixed.iter().chain(next.iter().map(|(_, target)| target)).cloned().collect();
        match channel.balancer.replace(targets, |target, record| maker.make(&target.address, record)) {
            Ok(()) => inserted = next,
            Err(error) => tracing::error!(%address, %error, "not inserted into a channel"),
        }
    }
}
