//! The beginning of a channel: who is who, whether they go together, and that both know the secret.
//!
//! Owns the order of the four frames and what both introductions hold. Whether a node is welcome is the
//! caller's to say: first for what anybody may know ([`Judge::suits`]), then, once the secret was proved, for
//! who it is ([`Judge::admits`]).

use super::members::is_name;
use super::proof::{Binding, Secret, Side};
use super::refusal::Refusal;
use super::wire::{Cut, Fields, Frame};
use super::{Kind, VERSION};
use crate::nats::outbox::Outbox;

const MAGIC: &[u8; 8] = b"tidepeer";
const STREAMS: u8 = 1;
const REJOINS: u8 = 2;
const URL_BYTES_MAX: usize = 512;

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The version it speaks.
    pub version: u16,
    /// What the channel is for; the other side says the same.
    pub raft: bool,
    /// Whether it serves streams.
    pub streams: bool,
    /// Whether its disk was lost, and it asks for the place it had.
    pub rejoins: bool,
    /// So many groups of all nodes keep streams there.
    pub shards: u8,
    /// Its id, that of its data directory; without one, of its process.
    pub id: u64,
    /// Drawn at each start.
    pub life: u64,
    /// Of the members it knows; 0 before they are fixed.
    pub digest: u64,
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Where clients connect to: `host:port`, `:port` for whatever address it is seen at, or nothing.
    pub client_url: String,
}

impl Introduction {
    /// What the channel is for.
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
        for text in [&self.cluster, &self.name, &self.client_url] {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// What follows the known fields is a later version's.
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
        let sound = raft <= 1 && id != 0 && is_name(&cluster) && is_name(&name);
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
        })
    }
}

impl Introduction {
    /// The node's name, where `f` is behind the version: every version has it at this place, so that a
    /// refusal can name the node.
    fn name_in_any_version(mut f: Fields<'_>) -> Option<String> {
        // What the channel is for, flags, shards; id, life, digest; the nonce; the cluster.
        f.array::<{ 3 + 3 * 8 + 32 }>().ok()?;
        f.text().ok()?;
        String::from_utf8(f.text().ok()?.to_vec()).ok()
    }
}

/// Who says whether a node is welcome.
pub trait Judge {
    /// What this node says of itself on a channel.
    fn introduction(&self, kind: Kind) -> Introduction;
    /// The cluster's secret.
    fn secret(&self) -> &Secret;
    /// Whether a node that says this could belong here; it has proved nothing yet.
    ///
    /// # Errors
    /// It could not.
    fn suits(&self, theirs: &Introduction) -> Result<(), Refusal>;
    /// Whether it is welcome now; it knows the secret. `side` is what this node is.
    ///
    /// # Errors
    /// It is not.
    fn admits(&self, side: Side, theirs: &Introduction) -> Result<(), Refusal>;
}

/// Why a greeting came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// The nodes do not go together.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is no node.
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
    /// Dialled, waiting for the dialer's introduction.
    Hello,
    /// Waiting for the other's introduction; the own was this.
    Challenge(Vec<u8>),
    /// Waiting for the dialer's proof over these two.
    Proof(Vec<u8>, Vec<u8>),
    /// Waiting for the other's proof over these two.
    Welcome(Vec<u8>, Vec<u8>),
    Over,
}

/// A greeting, seen from one side.
#[derive(Clone, Debug)]
pub struct Greeting {
    state: State,
    side: Side,
    kind: Kind,
    nonce: [u8; 32],
    /// The TLS session it takes place in.
    binding: Option<Binding>,
    /// It is to take place in one.
    wants_tls: bool,
    theirs: Option<Introduction>,
}

impl Greeting {
    /// Of the one who dials. `nonce` is random, and used nowhere else.
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

    /// Of the one who is dialled. `nonce` is random, and used nowhere else. With `wants_tls` whoever greets
    /// before [`Greeting::bind`] is refused.
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

    /// It takes place in this TLS session.
    pub const fn bind(&mut self, binding: Binding) {
        self.binding = Some(binding);
    }

    /// What this node is in it.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The next frame of the other side: who it is, once that is settled. What is to be sent, a refusal too,
    /// is appended.
    ///
    /// # Errors
    /// It came to nothing: what waits is to be sent, then the channel is to be closed.
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
    use crate::nats::outbox::Pool;

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

    /// Both go on until nothing more is said; `wants_tls` is the one's who is dialled, `bindings` the
    /// sessions each is in.
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
    fn whoever_refuses_says_why_and_both_say_the_same() {
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
        // A dialer that refuses tells the other, which let it in.
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
        // Somebody in between has one session with each.
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
        // Either may be the one that refuses: both say the same line.
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
