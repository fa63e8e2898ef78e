//! Which messages the server of a session takes as objects.

use tollfree_layout::MethodIdx;

use crate::attachment::Attachment;

impl Attachment {
    /// Says that requests of a method are taken as objects where its types have this fingerprint, and answered so (server). To
    /// be said once a method.
    pub fn take_objects(&self, method: MethodIdx, fingerprint: u64) {
        if let Ok(mut core) = self.shared.enter() {
            core.session_mut().take_objects(method, fingerprint);
        }
    }

    /// Whether the server takes a method's requests as objects (client): `Some(false)` where it does so of other types than
    /// those with this fingerprint, `None` while it has said nothing.
    pub fn takes_objects(&self, path: &str, fingerprint: u64) -> Option<bool> {
        self.shared.enter().ok()?.session_mut().takes_objects(path, fingerprint)
    }

    /// The fingerprint of a method's types, where the server takes its requests as objects and has said so (client).
    pub fn object_types(&self, path: &str) -> Option<u64> {
        self.shared.enter().ok()?.session_mut().object_types(path)
    }

    /// Paths of the methods that were called here with objects of other types than the server takes (client).
    pub fn differing(&self) -> Vec<String> {
        let Ok(core) = self.shared.enter() else { return Vec::new() };
        core.session().differing().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }
}
