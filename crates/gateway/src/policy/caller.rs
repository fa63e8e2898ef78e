//! Who makes a call, as a policy sees it.

use std::sync::Arc;

use super::token::Token;
use crate::client::{CertificateName, Client};

/// A call's client and its checked token.
pub(crate) struct CallerIdentity<'c> {
    client: &'c Client,
    token: Option<Arc<Token>>,
}

impl<'c> CallerIdentity<'c> {
    pub(crate) fn new(client: &'c Client, token: Option<Arc<Token>>) -> CallerIdentity<'c> {
        CallerIdentity { client, token }
    }

    pub(crate) fn client(&self) -> &'c Client {
        self.client
    }

    pub(crate) fn token(&self) -> Option<&Arc<Token>> {
        self.token.as_ref()
    }

    /// Whether anything but its address is known of it.
    pub(crate) fn is_known(&self) -> bool {
        self.name().is_some()
    }

    /// The name that it goes by: of its token, else of its certificate.
    pub(crate) fn name(&self) -> Option<String> {
        if let Some(token) = &self.token {
            return Some(format!("jwt:{}", token.subject()));
        }
        let names = self.client.certificate_names();
        let uri = names.iter().find_map(|name| match name {
            CertificateName::Uri(uri) => Some(uri.clone()),
            CertificateName::Dns(_) => None,
        });
        let dns = || {
            names.iter().find_map(|name| match name {
                CertificateName::Dns(dns) => Some(format!("dns:{dns}")),
                CertificateName::Uri(_) => None,
            })
        };
        let subject = || {
            let subject = self.client.subject();
            (!subject.is_empty()).then(|| format!("subject:{subject}"))
        };
        uri.or_else(dns).or_else(subject)
    }
}
