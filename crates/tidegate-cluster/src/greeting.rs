//! The greeting at the start of a channel: both nodes introduce themselves, check that they fit together, and
//! prove that they know the cluster's secret.
//!
//! This module owns the order of the four frames and the content of both introductions. The caller decides
//! whether it welcomes a peer: before the peer's proof only by facts that any stranger may learn
//! ([`Judge::suits`]), and after the proof by the peer's identity ([`Judge::admits`]).

use tidegate_nats::outbox::Outbox;

use super::members::is_name;
use super::proof::{Binding, Secret, Side};
use super::refusal::Refusal;
use super::wire::{Cut, Fields, Frame};
use super::{Kind, VERSION};

const MAGIC: &[u8; 8] = b"tidepeer";
const STREAMS: u8 = 1;
const REJOINS: u8 = 2;
const URL_BYTES_MAX: usize = 512;
/// The greatest number of bytes that the tags of a node may have together, with a byte between two of them,
/// so that an introduction fits into a greeting's frame.
pub const TAGS_BYTES_MAX: usize = 2048;

/// The facts about itself that a node sends in a greeting, by which the peer decides whether to welcome it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The version of the protocol between nodes that the node speaks. A peer of another version refuses the
    /// node.
    pub version: u16,
    /// True if the introduction opens a Raft channel, false if it opens a channel for routes. Both nodes of
    /// a channel must state the same kind.
    pub raft: bool,
    /// True if the node serves streams; all nodes of a cluster do, or none.
    pub streams: bool,
    /// True if the node lost its disk, and asks the members for its former place, so that they admit it
    /// under a new id.
    pub rejoins: bool,
    /// The number of Raft groups that consist of all nodes of the cluster, as the node's configuration sets
    /// it. It must be equal on all nodes.
    pub shards: u8,
    /// The node's id: a random number in the data directory, by which peers know the node after a restart. A
    /// node without a directory draws an id at each start.
    pub id: u64,
    /// A random number that the node's process draws at each start. By it a peer distinguishes two processes
    /// with the same id, such as a node before and after a restart.
    pub life: u64,
    /// The digest of the members that the node knows, by which two nodes notice that their members differ; 0
    /// before the node has fixed the members.
    pub digest: u64,
    /// The name of the node's cluster; nodes of other clusters refuse the node.
    pub cluster: String,
    /// The node's name, which differs from the names of all other nodes of the cluster.
    pub name: String,
    /// The address to which the node's clients connect, as `host:port`. In the form `:port` without a host,
    /// the peer adds the address at which it sees the node. If the text is empty, the node advertises no
    /// address.
    pub client_url: String,
    /// The tags that the operator gives the node, for the placement of streams, in lower case. No tag has a
    /// comma.
    pub tags: Vec<String>,
}

impl Introduction {
    /// Returns the kind of channel that this introduction opens, and so the frames that the channel carries.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self.raft {
            true => Kind::Raft,
            false => Kind::Route,
        }
    }

    fn encode(&self, nonce: &[u8; 32]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.push(u8::from(self.raft));
        let flag = |on, flag| if on { flag } else { 0 };
        out.push(flag(self.streams, STREAMS) | flag(self.rejoins, REJOINS));
        out.push(self.shards);
        for n in [self.id, self.life, self.digest] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(nonce);
        // A node without tags writes no field for them, as versions without tags do, so that both understand
        // each other.
        let tags = Some(self.tags.join(",")).filter(|tags| !tags.is_empty());
        for text in [&self.cluster, &self.name, &self.client_url]
            .into_iter()
            .chain(&tags)
        {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// Decodes an introduction. Ignores bytes after the known fields, because a later version may have added
    /// them.
    fn decode(body: &[u8], judge: &dyn Judge) -> Result<Self, GreetingError> {
        let mut f = Fields(body);
        if f.array() != Ok(MAGIC) {
            return Err(GreetingError::Stranger);
        }
        let version = f.u16()?;
        if version != VERSION {
            let theirs = Self::name_in_any_version(f).filter(|name| is_name(name));
            let refusal = Refusal::Version {
                theirs: theirs.map_or_else(|| "the other node".into(), |name| format!("`{name}`")),
                version,
                ours: judge.introduction(Kind::Route).name,
            };
            return Err(refusal.into());
        }
        let [raft, flags, shards] = *f.array()?;
        let (id, life, digest) = (f.u64()?, f.u64()?, f.u64()?);
        f.array::<32>()?;
        let mut text = || {
            let text = std::str::from_utf8(f.text()?).map_err(|_| Cut)?;
            Ok::<_, Cut>(text.to_owned())
        };
        let (cluster, name, client_url) = (text()?, text()?, text()?);
        let tags = match f.0 {
            [] => String::new(),
            _ => std::str::from_utf8(f.text()?).map_err(|_| Cut)?.to_owned(),
        };
        let sound = raft <= 1
            && id != 0
            && is_name(&cluster)
            && is_name(&name)
            && tags.len() <= TAGS_BYTES_MAX
            && !tags.contains(char::is_control);
        if !sound || client_url.len() > URL_BYTES_MAX || client_url.contains(char::is_control) {
            return Err(GreetingError::Stranger);
        }
        Ok(Self {
            version,
            raft: raft == 1,
            streams: flags & STREAMS != 0,
            rejoins: flags & REJOINS != 0,
            shards,
            id,
            life,
            digest,
            cluster,
            name,
            client_url,
            tags: tags
                .split(',')
                .filter(|tag| !tag.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

impl Introduction {
    /// Returns the node's name from an introduction. `f` begins just behind the version. Every version of
    /// the protocol keeps the name at this place, so that a refusal of another version can name the node.
    fn name_in_any_version(mut f: Fields<'_>) -> Option<String> {
        // The function skips the fields before the name: the kind of channel, flags, shards; id, life,
        // digest; the nonce; then the cluster's name.
        f.array::<{ 3 + 3 * 8 + 32 }>().ok()?;
        f.text().ok()?;
        String::from_utf8(f.text().ok()?.to_vec()).ok()
    }
}

/// Decides whether this node welcomes a peer during a greeting.
pub trait Judge {
    /// Returns this node's introduction for a channel of this kind, which the greeting sends to the peer.
    fn introduction(&self, kind: Kind) -> Introduction;
    /// Returns the cluster's secret, with which the greeting makes and checks proofs.
    fn secret(&self) -> &Secret;
    /// Checks whether a node with this introduction could belong to this node's cluster. The node has not
    /// proved yet that it knows the secret.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the node cannot belong to this cluster.
    fn suits(&self, theirs: &Introduction) -> Result<(), Refusal>;
    /// Checks whether this node welcomes a peer that has proved that it knows the secret. `side` is the side
    /// of this node.
    ///
    /// # Errors
    ///
    /// Returns the refusal if this node does not welcome the peer now.
    fn admits(&self, side: Side, theirs: &Introduction) -> Result<(), Refusal>;
}

/// The reason why a greeting between two nodes failed, for the logs of both.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// One of the two nodes refused the other node.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The other side of the connection is not a tidegate node.
    #[error("expected the greeting of a tidegate node: the address belongs to something else")]
    Stranger,
}

impl From<Cut> for GreetingError {
    fn from(_: Cut) -> Self {
        Self::Stranger
    }
}

#[derive(Clone, Debug)]
enum State {
    /// The dialled node waits for the dialer's introduction.
    Hello,
    /// The dialer waits for the dialled node's introduction. The field is the dialer's introduction, which
    /// the proofs cover.
    Challenge(Vec<u8>),
    /// The dialled node waits for the dialer's proof over both introductions. The fields are the dialer's and
    /// the dialled node's introduction.
    Proof(Vec<u8>, Vec<u8>),
    /// The dialer waits for the dialled node's proof over both introductions. The fields are the dialer's and
    /// the dialled node's introduction.
    Welcome(Vec<u8>, Vec<u8>),
    Over,
}

/// The state machine of a greeting on one side of a channel; see the [module](self).
#[derive(Clone, Debug)]
pub struct Greeting {
    state: State,
    side: Side,
    kind: Kind,
    nonce: [u8; 32],
    /// The TLS session in which the greeting takes place, which the proofs cover; `None` without TLS.
    binding: Option<Binding>,
    /// True if the greeting must take place in a TLS session, because the configuration requires TLS.
    wants_tls: bool,
    theirs: Option<Introduction>,
}

impl Greeting {
    /// Starts the greeting as the dialer, and writes this node's introduction into `out`. `nonce` is random,
    /// and no other greeting uses it.
    #[must_use]
    pub fn dial(kind: Kind, nonce: [u8; 32], judge: &dyn Judge, out: &mut Outbox) -> Self {
        let hello = judge.introduction(kind).encode(&nonce);
        Frame::Hello(&hello).write(out);
        Self {
            state: State::Challenge(hello),
            side: Side::Dialer,
            kind,
            nonce,
            binding: None,
            wants_tls: false,
            theirs: None,
        }
    }

    /// Starts the greeting as the dialled node. `nonce` is random, and no other greeting uses it. With
    /// `wants_tls` the node refuses a dialer that greets before [`Greeting::bind`].
    #[must_use]
    pub const fn answer(nonce: [u8; 32], wants_tls: bool) -> Self {
        Self {
            state: State::Hello,
            side: Side::Dialled,
            kind: Kind::Route,
            nonce,
            binding: None,
            wants_tls,
            theirs: None,
        }
    }

    /// Binds the greeting to this TLS session, so that proofs from another session do not count.
    pub const fn bind(&mut self, binding: Binding) {
        self.binding = Some(binding);
    }

    /// Returns this node's side of the channel: the dialer or the dialled node.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Handles the peer's next frame, and returns the peer's introduction once the greeting is over. Appends
    /// the answering frames for the peer, such as a proof or a refusal, to `out`.
    ///
    /// # Errors
    ///
    /// See [`GreetingError`]: the greeting failed. The caller sends the frames in `out`, then closes the
    /// channel.
    pub fn handle(
        &mut self,
        frame: &Frame<'_>,
        judge: &dyn Judge,
        out: &mut Outbox,
    ) -> Result<Option<Introduction>, GreetingError> {
        let done = self.advance(frame, judge, out);
        if let Err(GreetingError::Refused(refusal)) = &done
            && !matches!(refusal, Refusal::Theirs { .. })
        {
            refusal.write(out);
        }
        done
    }

    fn advance(
        &mut self,
        frame: &Frame<'_>,
        judge: &dyn Judge,
        out: &mut Outbox,
    ) -> Result<Option<Introduction>, GreetingError> {
        let wrong_secret = |theirs: &Introduction| Refusal::Secret(theirs.cluster.clone());
        let binding = self.binding;
        let binding = binding.as_ref();
        match (std::mem::replace(&mut self.state, State::Over), frame) {
            (_, Frame::Refused { code, text }) => Err(Refusal::theirs(*code, text).into()),
            (State::Hello, Frame::Hello(hello)) => {
                let theirs = Introduction::decode(hello, judge)?;
                if self.wants_tls && binding.is_none() {
                    return Err(Refusal::NoTls.into());
                }
                judge.suits(&theirs)?;
                self.kind = theirs.kind();
                let challenge = judge.introduction(self.kind).encode(&self.nonce);
                Frame::Challenge(&challenge).write(out);
                self.state = State::Proof(hello.to_vec(), challenge);
                self.theirs = Some(theirs);
                Ok(None)
            }
            (State::Challenge(hello), Frame::Challenge(challenge)) => {
                let theirs = Introduction::decode(challenge, judge)?;
                judge.suits(&theirs)?;
                if theirs.kind() != self.kind {
                    return Err(GreetingError::Stranger);
                }
                let proof = judge
                    .secret()
                    .prove(Side::Dialer, &hello, challenge, binding);
                Frame::Proof(&proof).write(out);
                self.state = State::Welcome(hello, challenge.to_vec());
                self.theirs = Some(theirs);
                Ok(None)
            }
            (State::Proof(hello, challenge), Frame::Proof(proof)) => {
                let theirs = self.theirs.take().ok_or(GreetingError::Stranger)?;
                let secret = judge.secret();
                if !secret.check(Side::Dialer, &hello, &challenge, binding, proof) {
                    return Err(wrong_secret(&theirs).into());
                }
                judge.admits(self.side, &theirs)?;
                let proof = secret.prove(Side::Dialled, &hello, &challenge, binding);
                Frame::Welcome(&proof).write(out);
                Ok(Some(theirs))
            }
            (State::Welcome(hello, challenge), Frame::Welcome(proof)) => {
                let theirs = self.theirs.take().ok_or(GreetingError::Stranger)?;
                let secret = judge.secret();
                if !secret.check(Side::Dialled, &hello, &challenge, binding, proof) {
                    return Err(wrong_secret(&theirs).into());
                }
                judge.admits(self.side, &theirs)?;
                Ok(Some(theirs))
            }
            _ => Err(GreetingError::Stranger),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{GREETING_BYTES_MAX, Read, read};
    use super::*;
    use tidegate_nats::outbox::Pool;

    struct Node {
        me: Introduction,
        secret: Secret,
        welcome: Result<(), Refusal>,
    }

    fn node(name: &str, id: u64, secret: &str) -> Node {
        Node {
            me: Introduction {
                version: VERSION,
                id,
                life: id,
                cluster: "tide".into(),
                name: name.into(),
                client_url: ":4222".into(),
                tags: Vec::new(),
                streams: true,
                ..Introduction::default()
            },
            secret: Secret::new(secret),
            welcome: Ok(()),
        }
    }

    impl Judge for Node {
        fn introduction(&self, kind: Kind) -> Introduction {
            Introduction {
                raft: kind == Kind::Raft,
                ..self.me.clone()
            }
        }
        fn secret(&self) -> &Secret {
            &self.secret
        }
        fn suits(&self, theirs: &Introduction) -> Result<(), Refusal> {
            match theirs.cluster == self.me.cluster {
                true => Ok(()),
                false => Err(Refusal::Cluster {
                    theirs: theirs.cluster.clone(),
                    ours: self.me.cluster.clone(),
                }),
            }
        }
        fn admits(&self, _: Side, _: &Introduction) -> Result<(), Refusal> {
            self.welcome.clone()
        }
    }

    type Outcome = Result<Introduction, GreetingError>;

    fn greet(a: &Node, b: &Node) -> (Option<Outcome>, Option<Outcome>) {
        greet_in(a, b, false, [None, None])
    }

    /// Exchanges frames until both sides are silent. With `wants_tls` the dialled node demands a TLS session;
    /// `bindings` holds the TLS session of each side.
    fn greet_in(
        a: &Node,
        b: &Node,
        wants_tls: bool,
        bindings: [Option<Binding>; 2],
    ) -> (Option<Outcome>, Option<Outcome>) {
        let mut outs = [Outbox::default(), Outbox::default()];
        let mut sides = [
            Greeting::dial(Kind::Raft, [1; 32], a, &mut outs[0]),
            Greeting::answer([2; 32], wants_tls),
        ];
        for (side, binding) in sides.iter_mut().zip(bindings) {
            if let Some(binding) = binding {
                side.bind(binding);
            }
        }
        let mut done = [None, None];
        for turn in 0..8 {
            let (from, to) = (turn % 2, (turn + 1) % 2);
            let bytes = outs[from].to_vec();
            outs[from].clear(&mut Pool::default());
            let mut rest = &bytes[..];
            while let Ok(Read::Frame(frame, used)) = read(rest, GREETING_BYTES_MAX) {
                rest = &rest[used..];
                let judge = if to == 0 { a } else { b };
                if done[to].is_none() {
                    let outcome = sides[to].handle(&frame, judge, &mut outs[to]);
                    done[to] = outcome.transpose();
                }
            }
        }
        let [a, b] = done;
        (a, b)
    }

    #[test]
    fn two_with_one_secret_know_each_other() {
        let (a, b) = (node("n1", 1, "s"), node("n2", 2, "s"));
        let (of_a, of_b) = greet(&a, &b);
        let raft = |n: &Node| Some(Ok(n.introduction(Kind::Raft)));
        assert_eq!((of_a, of_b), (raft(&b), raft(&a)));
    }

    #[test]
    fn both_sides_of_a_refusal_give_the_same_reason() {
        let theirs = |refusal: &Refusal| Refusal::Theirs {
            code: refusal.code(),
            text: refusal.to_string(),
        };
        let (a, b) = (node("n1", 1, "s"), node("n2", 2, "other"));
        let secret = Refusal::Secret("tide".into());
        let (of_a, of_b) = greet(&a, &b);
        assert_eq!(of_b, Some(Err(secret.clone().into())));
        assert_eq!(of_a, Some(Err(theirs(&secret).into())));
        let mut c = node("n3", 3, "s");
        c.me.cluster = "ebb".into();
        let (of_a, of_c) = greet(&a, &c);
        let cluster = Refusal::Cluster {
            theirs: "tide".into(),
            ours: "ebb".into(),
        };
        assert_eq!(of_c, Some(Err(cluster.clone().into())));
        assert_eq!(of_a, Some(Err(theirs(&cluster).into())));
        // The dialled node has already admitted the dialer. The dialer refuses the dialled node and tells it
        // the reason.
        let mut d = node("n4", 4, "s");
        d.welcome = Err(Refusal::TooMany);
        let (of_d, of_a) = greet(&d, &a);
        assert_eq!(of_d, Some(Err(Refusal::TooMany.into())));
        assert!(matches!(of_a, Some(Ok(_))));
    }

    #[test]
    fn a_greeting_belongs_to_its_tls_session() {
        let (a, b) = (node("n1", 1, "s"), node("n2", 2, "s"));
        let (of_a, of_b) = greet_in(&a, &b, true, [Some([7; 32]), Some([7; 32])]);
        assert!(matches!((of_a, of_b), (Some(Ok(_)), Some(Ok(_)))));
        // A man in the middle has a different TLS session with each side, so the proofs do not match.
        let secret = Refusal::Secret("tide".into());
        let (_, of_b) = greet_in(&a, &b, true, [Some([7; 32]), Some([8; 32])]);
        assert_eq!(of_b, Some(Err(secret.into())));
        let (of_a, of_b) = greet_in(&a, &b, true, [None, None]);
        assert_eq!(of_b, Some(Err(Refusal::NoTls.into())));
        assert!(matches!(
            of_a,
            Some(Err(GreetingError::Refused(Refusal::Theirs {
                code: 14,
                ..
            })))
        ));
    }

    #[test]
    fn nodes_of_different_versions_refuse_each_other_by_name() {
        let (a, mut b) = (node("n1", 1, "s"), node("n2", 2, "s"));
        b.me.version = VERSION + 1;
        let refusal = Refusal::Version {
            theirs: "`n2`".into(),
            version: VERSION + 1,
            ours: "n1".into(),
        };
        let theirs = Refusal::Theirs {
            code: refusal.code(),
            text: refusal.to_string(),
        };
        // Both nodes must report the same line, no matter which of the two refuses the other.
        let (of_b, of_a) = greet(&b, &a);
        assert_eq!(of_a, Some(Err(refusal.clone().into())));
        assert_eq!(of_b, Some(Err(theirs.clone().into())));
        let (of_a, of_b) = greet(&a, &b);
        assert_eq!(of_a, Some(Err(refusal.into())));
        assert_eq!(of_b, Some(Err(theirs.into())));
    }

    #[test]
    fn frames_out_of_order_are_no_greeting() {
        let (a, mut out) = (node("n1", 1, "s"), Outbox::default());
        for frame in [
            Frame::Ping,
            Frame::Welcome(&[0; 32]),
            Frame::Hello(b"x"),
            Frame::Proof(&[0; 32]),
        ] {
            let mut greeting = Greeting::answer([0; 32], false);
            let outcome = greeting.handle(&frame, &a, &mut out);
            assert_eq!(outcome, Err(GreetingError::Stranger));
        }
    }
}
