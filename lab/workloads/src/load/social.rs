//! Users of the social network: 60 of 100 requests read a home timeline, 30 a user's, 10 compose a post.

use tokio::task::JoinSet;

use super::{Caller, failed, in_full};
use crate::dice::Dice;
use crate::direct::{Post, Timeline, TimelineRequest};
use crate::pattern;
use crate::seat::Seat;
use crate::services::{POPULAR_COUNT, USER_COUNT};
use crate::stubs::SocialClient;

/// Posts that a timeline shows.
const SHOWN_COUNT: u32 = 10;
/// Letters of a post's text.
const TEXT_LEN: usize = 200;
/// Posts of each popular user before anybody reads; the others have one.
const FIRST_POST_COUNT: u64 = 8;
/// What first posts are numbered from; others are numbered by their calls.
const FIRST_POSTS: u64 = 1 << 40;

#[derive(Clone)]
pub(super) struct Users {
    seat: Seat,
    client: SocialClient,
    media_len: usize,
}

impl Users {
    pub(super) async fn new(seat: &Seat, entry: &str, media_len: usize) -> Result<Users, String> {
        Ok(Users { seat: seat.clone(), client: SocialClient::connect(seat, entry).await?, media_len })
    }

    async fn compose(&self, author: u32, seed: u64) -> Result<(), String> {
        let text = format!("{seed:016x} {:.<width$}", "and so on ", width = TEXT_LEN - 17);
        let media = self.seat.write(self.media_len, seed)?;
        let id = self.client.compose_post(Post { id: 0, author, text, media }).await.map_err(failed)?.id;
        if id == 0 { Err("a post was stored without an id".to_owned()) } else { Ok(()) }
    }

    /// Every post that is shown has the media that it was composed with.
    fn check(&self, timeline: &Timeline, in_full: bool, request: TimelineRequest) -> Result<(), String> {
        if timeline.posts.is_empty() {
            return Err(format!("the timeline of user {} is empty", request.user));
        }
        for post in &timeline.posts {
            let seed = post.text.get(..16).and_then(|seed| u64::from_str_radix(seed, 16).ok());
            let seed = seed.ok_or_else(|| format!("post {} has another text", post.id))?;
            let is_right = pattern::is_at_the_ends(&post.media, self.media_len, seed)
                && (!in_full || pattern::sum(&post.media) == pattern::sum_of(self.media_len, seed));
            if !is_right {
                return Err(format!("post {} has other media than it was composed with", post.id));
            }
        }
        Ok(())
    }
}

impl Caller for Users {
    /// Every user has posted, so that no timeline is empty.
    async fn prepare(&self) -> Result<(), String> {
        let first = (0..USER_COUNT).map(|author| (0, author));
        let more = (1..FIRST_POST_COUNT).flat_map(|nth| (0..POPULAR_COUNT).map(move |author| (nth, author)));
        let mut composing = JoinSet::new();
        for (nth, author) in first.chain(more) {
            let (users, seed) = (self.clone(), FIRST_POSTS + nth * u64::from(USER_COUNT) + u64::from(author));
            composing.spawn(async move { users.compose(author, seed).await });
        }
        while let Some(ended) = composing.join_next().await {
            ended.map_err(|error| format!("a composing task came to grief: {error}"))??;
        }
        Ok(())
    }

    async fn call(&self, nth: u64) -> Result<(), String> {
        let mut dice = Dice::new(nth);
        let kind = dice.below(100);
        let user = dice.below(USER_COUNT.into()) as u32;
        // Most posts are by few users, and most who read a user's timeline read theirs.
        let author = if dice.below(100) < 80 { user % POPULAR_COUNT } else { user };
        let timeline = |user| TimelineRequest { user, count: SHOWN_COUNT };
        match kind {
            0..60 => {
                let request = timeline(user);
                let shown = self.client.read_home_timeline(request).await.map_err(failed)?;
                self.check(&shown, in_full(nth), request)
            }
            60..90 => {
                let request = timeline(author);
                let shown = self.client.read_user_timeline(request).await.map_err(failed)?;
                if let Some(post) = shown.posts.iter().find(|post| post.author != author) {
                    return Err(format!("user {author}'s timeline shows a post of user {}", post.author));
                }
                self.check(&shown, in_full(nth), request)
            }
            _ => self.compose(author, nth).await,
        }
    }
}
