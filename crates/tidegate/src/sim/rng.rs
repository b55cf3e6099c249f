//! The Mersenne Twister, with the seeding and the distributions of CPython's `random.Random`.
//!
//! The generator was not chosen for its quality. With it a scenario has exactly the arrivals and noise of the
//! executable model that the controllers were designed on, so that results can be compared value by value and
//! not only in distribution. Sources: Matsumoto and Nishimura, ACM TOMACS 8(1), 1998, and their
//! `init_by_array` of 2002; CPython's `random.py` for the two distributions.

const N: usize = 624;
const M: usize = 397;

/// A seeded generator of random numbers for the simulator: the Mersenne Twister.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u32; N],
    at: usize,
    spare: Option<f64>,
}

impl Rng {
    /// Creates the generator that CPython's `Random(seed)` creates, for seeds below 2^32.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut s = [0u32; N];
        s[0] = 19_650_218;
        for i in 1..N {
            s[i] = 1_812_433_253u32
                .wrapping_mul(s[i - 1] ^ (s[i - 1] >> 30))
                .wrapping_add(i as u32);
        }
        let mix = |s: &mut [u32; N], i: &mut usize, factor: u32| {
            s[*i] ^= (s[*i - 1] ^ (s[*i - 1] >> 30)).wrapping_mul(factor);
            *i
        };
        let mut i = 1;
        for _ in 0..N {
            let k = mix(&mut s, &mut i, 1_664_525);
            s[k] = s[k].wrapping_add(seed);
            i = wrap(&mut s, i + 1);
        }
        for _ in 0..N - 1 {
            let k = mix(&mut s, &mut i, 1_566_083_941);
            s[k] = s[k].wrapping_sub(k as u32);
            i = wrap(&mut s, i + 1);
        }
        s[0] = 0x8000_0000;
        Self {
            state: s,
            at: N,
            spare: None,
        }
    }

    fn next_u32(&mut self) -> u32 {
        if self.at == N {
            self.refill();
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        let s = &mut self.state;
        for i in 0..N {
            let y = (s[i] & 0x8000_0000) | (s[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            s[i] = s[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.at = 0;
    }

    /// Draws from the uniform distribution on [0, 1), with 53 random bits.
    pub fn random(&mut self) -> f64 {
        let (a, b) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(a) * 67_108_864.0 + f64::from(b)) / 9_007_199_254_740_992.0
    }

    /// Draws from the exponential distribution with this rate, such as the time between two Poisson arrivals.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.random()).ln() / rate
    }

    /// Draws from the normal distribution with mean 0 and this standard deviation, for the noise of costs.
    pub fn normal(&mut self, sigma: f64) -> f64 {
        let z = self.spare.take().unwrap_or_else(|| {
            let angle = self.random() * std::f64::consts::TAU;
            let radius = (-2.0 * (1.0 - self.random()).ln()).sqrt();
            self.spare = Some(angle.sin() * radius);
            angle.cos() * radius
        });
        z * sigma
    }
}

fn wrap(s: &mut [u32; N], i: usize) -> usize {
    if i >= N {
        s[0] = s[N - 1];
        1
    } else {
        i
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers come from CPython 3.11:
    /// `r = Random(7); r.random(), r.random(), r.expovariate(2.0), r.gauss(0, 1), r.gauss(0, 1)`.
    #[test]
    fn it_draws_what_cpython_draws() {
        let mut r = Rng::new(7);
        let drawn = [
            r.random(),
            r.random(),
            r.exponential(2.0),
            r.normal(1.0),
            r.normal(1.0),
        ];
        let expected = EXPECTED;
        for (d, e) in drawn.iter().zip(expected) {
            assert!((d - e).abs() < 1e-15, "{drawn:?}");
        }
    }

    const EXPECTED: [f64; 5] = [
        0.32383276483316237,
        0.15084917392450192,
        0.5262478090354634,
        1.112914852545535,
        0.5446590190449835,
    ];
}
