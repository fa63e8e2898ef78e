//! How a group's requests are announced to its backend connections, and how these wait for them.

use serde::{Deserialize, Serialize};
use tollfree::gateway::{Batch, DoorbellMode, Registers, Spin};
use tollfree_control::{Device, Word};

use super::Config;

/// The same for one group: what is not said is as for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GroupDevice {
    /// See [`Device::batch`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<super::schema::WordOrNumber>"))]
    pub batch: Option<Word<Batch>>,
    /// See [`Device::doorbell`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<super::schema::WordOrNumber>"))]
    pub doorbell: Option<Word<DoorbellMode>>,
    /// See [`Device::spin_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<super::schema::WordOrNumber>"))]
    pub spin_us: Option<Word<Spin>>,
    /// See [`Device::hold_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_us: Option<u32>,
    /// See [`Device::poll_load`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_load: Option<u32>,
}

impl Config {
    /// How a group's requests are announced.
    pub fn device_of(&self, group: &str) -> Device {
        let all = self.device;
        let own = self.groups.get(group).map_or_else(GroupDevice::default, |group| group.device);
        Device {
            batch: own.batch.unwrap_or(all.batch),
            doorbell: own.doorbell.unwrap_or(all.doorbell),
            spin_us: own.spin_us.unwrap_or(all.spin_us),
            hold_us: own.hold_us.unwrap_or(all.hold_us),
            poll_load: own.poll_load.unwrap_or(all.poll_load),
        }
    }
}

/// The key that is wrong, and why.
pub(super) fn check(device: &Device) -> Result<(), (&'static str, String)> {
    let held = Registers::default().with_hold_us(device.hold_us);
    held.map(drop).map_err(|error| ("hold_us", error.to_string()))
}
