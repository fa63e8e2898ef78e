//! Signatures of tokens, checked by ring.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtVerifier};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        let scheme = Scheme::of(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
        Ok(Box::new(SignatureCheck { algorithm: *algorithm, scheme, key: key.clone() }))
    },
    jwk_utils: JwkUtils::new_unimplemented(),
};

/// Has tokens checked by ring, unless the program has chosen something else.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| _ = RING.install_default());
}

/// How signatures of an algorithm are checked.
enum Scheme {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

impl Scheme {
    /// None for those that need a secret.
    fn of(algorithm: Algorithm) -> Option<Scheme> {
        Some(match algorithm {
            Algorithm::RS256 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Scheme::Other(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Scheme::Other(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Scheme::Other(&ED25519),
            _ => return None,
        })
    }
}

struct SignatureCheck {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for SignatureCheck {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let is_right = match (&self.scheme, self.key.family(), self.key.kind()) {
            (Scheme::Rsa(scheme), _, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature).is_ok()
            }
            (
                Scheme::Other(scheme),
                AlgorithmFamily::Ec | AlgorithmFamily::Ed,
                DecodingKeyKind::SecretOrDer(key),
            ) => UnparsedPublicKey::new(*scheme, key).verify(message, signature).is_ok(),
            _ => false,
        };
        is_right.then_some(()).ok_or_else(signature::Error::new)
    }
}

impl JwtVerifier for SignatureCheck {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
