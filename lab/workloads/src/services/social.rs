//! The services of the social network. Posts carry media, which only those who read timelines look at.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tonic::Status;

use crate::direct::{Appended, Entry, Post, PostId, PostIds, Timeline, TimelineRequest, User, Users};
use crate::seat::Seat;
use crate::stubs::*;

/// Users that there are.
pub(crate) const USER_COUNT: u32 = 64;
/// Of these, the first are followed by everybody.
pub(crate) const POPULAR_COUNT: u32 = 8;
/// Followers of each of the others.
const FOLLOWER_COUNT: u32 = 8;
/// Posts of a timeline that are kept, and posts of a user; older ones are dropped.
const TIMELINE_LEN_MAX: usize = 32;

/// What a process gives on of a timeline that it got.
fn pass_on(seat: &Seat, mut timeline: Timeline) -> Result<Timeline, Status> {
    for post in &mut timeline.posts {
        post.media = seat.pass_on(std::mem::take(&mut post.media))?;
    }
    Ok(timeline)
}

fn pass_on_post(seat: &Seat, mut post: Post) -> Result<Post, Status> {
    post.media = seat.pass_on(post.media)?;
    Ok(post)
}

/// Passes all requests on, to each of several in turn: a balancer, or a proxy where there is one to pass them to.
pub(super) struct Forward {
    seat: Seat,
    to: Vec<SocialClient>,
    turn: AtomicUsize,
}

impl Forward {
    pub(super) async fn to(seat: &Seat, addresses: &[String]) -> Result<Forward, String> {
        let mut to = Vec::with_capacity(addresses.len());
        for address in addresses {
            to.push(SocialClient::connect(seat, address).await?);
        }
        if to.is_empty() {
            return Err("there is nobody to pass requests on to".to_owned());
        }
        Ok(Forward { seat: seat.clone(), to, turn: AtomicUsize::new(0) })
    }

    fn next(&self) -> &SocialClient {
        &self.to[self.turn.fetch_add(1, Ordering::Relaxed) % self.to.len()]
    }
}

impl HandleSocial for Forward {
    async fn compose_post(&self, request: Post) -> Result<PostId, Status> {
        self.next().compose_post(pass_on_post(&self.seat, request)?).await
    }

    async fn read_home_timeline(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.next().read_home_timeline(request).await?)
    }

    async fn read_user_timeline(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.next().read_user_timeline(request).await?)
    }
}

/// Knows which service does what.
pub(super) struct Front {
    seat: Seat,
    composer: ComposerClient,
    home: TimelinesClient,
    user: TimelinesClient,
}

impl Front {
    pub(super) async fn to(seat: &Seat, [composer, home, user]: [&str; 3]) -> Result<Front, String> {
        Ok(Front {
            seat: seat.clone(),
            composer: ComposerClient::connect(seat, composer).await?,
            home: TimelinesClient::connect(seat, home).await?,
            user: TimelinesClient::connect(seat, user).await?,
        })
    }
}

impl HandleSocial for Front {
    async fn compose_post(&self, request: Post) -> Result<PostId, Status> {
        self.composer.compose(pass_on_post(&self.seat, request)?).await
    }

    async fn read_home_timeline(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.home.read(request).await?)
    }

    async fn read_user_timeline(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.user.read(request).await?)
    }
}

/// Gives posts their ids, has them stored, and puts them into the timelines.
pub(super) struct Compose {
    seat: Seat,
    last_id: AtomicU64,
    posts: PostsClient,
    home: TimelinesClient,
    user: TimelinesClient,
}

impl Compose {
    pub(super) async fn to(seat: &Seat, [posts, home, user]: [&str; 3]) -> Result<Compose, String> {
        Ok(Compose {
            seat: seat.clone(),
            last_id: AtomicU64::new(0),
            posts: PostsClient::connect(seat, posts).await?,
            home: TimelinesClient::connect(seat, home).await?,
            user: TimelinesClient::connect(seat, user).await?,
        })
    }
}

impl HandleComposer for Compose {
    async fn compose(&self, request: Post) -> Result<PostId, Status> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Entry { author: request.author, post: id };
        let post = Post { id, ..pass_on_post(&self.seat, request)? };
        // Before the timelines name it.
        self.posts.store(post).await?;
        let (user, home) = tokio::join!(self.user.append(entry), self.home.append(entry));
        user.and(home)?;
        Ok(PostId { id })
    }
}

/// The latest posts of many timelines, newest last.
#[derive(Default)]
struct Lists {
    lists: Mutex<HashMap<u32, VecDeque<u64>>>,
}

impl Lists {
    fn append(&self, user: u32, post: u64) {
        let mut lists = self.lists.lock();
        let list = lists.entry(user).or_default();
        if list.len() == TIMELINE_LEN_MAX {
            list.pop_front();
        }
        list.push_back(post);
    }

    /// The newest, newest first.
    fn newest(&self, request: TimelineRequest) -> PostIds {
        let lists = self.lists.lock();
        let list = lists.get(&request.user).into_iter().flatten();
        PostIds { ids: list.rev().take(request.count as usize).copied().collect() }
    }
}

/// What a user has posted.
pub(super) struct UserTimeline {
    seat: Seat,
    lists: Lists,
    posts: PostsClient,
}

impl UserTimeline {
    pub(super) async fn to(seat: &Seat, posts: &str) -> Result<UserTimeline, String> {
        let posts = PostsClient::connect(seat, posts).await?;
        Ok(UserTimeline { seat: seat.clone(), lists: Lists::default(), posts })
    }
}

impl HandleTimelines for UserTimeline {
    async fn append(&self, request: Entry) -> Result<Appended, Status> {
        self.lists.append(request.author, request.post);
        Ok(Appended { timelines: 1 })
    }

    async fn read(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.posts.fetch(self.lists.newest(request)).await?)
    }
}

/// What those whom a user follows have posted.
pub(super) struct HomeTimeline {
    seat: Seat,
    lists: Lists,
    posts: PostsClient,
    graph: GraphClient,
}

impl HomeTimeline {
    pub(super) async fn to(seat: &Seat, [posts, graph]: [&str; 2]) -> Result<HomeTimeline, String> {
        Ok(HomeTimeline {
            seat: seat.clone(),
            lists: Lists::default(),
            posts: PostsClient::connect(seat, posts).await?,
            graph: GraphClient::connect(seat, graph).await?,
        })
    }
}

impl HandleTimelines for HomeTimeline {
    async fn append(&self, request: Entry) -> Result<Appended, Status> {
        let followers = self.graph.followers(User { user: request.author }).await?.users;
        followers.iter().for_each(|user| self.lists.append(*user, request.post));
        Ok(Appended { timelines: followers.len() as u32 })
    }

    async fn read(&self, request: TimelineRequest) -> Result<Timeline, Status> {
        pass_on(&self.seat, self.posts.fetch(self.lists.newest(request)).await?)
    }
}

/// Keeps posts, the media as they came: in the pool, where there is one.
pub(super) struct Storage {
    seat: Seat,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    posts: HashMap<u64, Post>,
    of_author: HashMap<u32, VecDeque<u64>>,
}

impl Storage {
    pub(super) fn new(seat: &Seat) -> Storage {
        Storage { seat: seat.clone(), kept: Mutex::default() }
    }
}

impl HandlePosts for Storage {
    async fn store(&self, request: Post) -> Result<PostId, Status> {
        let id = request.id;
        let Kept { posts, of_author } = &mut *self.kept.lock();
        let order = of_author.entry(request.author).or_default();
        if order.len() == TIMELINE_LEN_MAX
            && let Some(oldest) = order.pop_front()
        {
            posts.remove(&oldest);
        }
        order.push_back(id);
        posts.insert(id, request);
        Ok(PostId { id })
    }

    /// Posts that were dropped are left out.
    async fn fetch(&self, request: PostIds) -> Result<Timeline, Status> {
        let posts = {
            let kept = self.kept.lock();
            request.ids.iter().filter_map(|id| kept.posts.get(id).cloned()).collect()
        };
        pass_on(&self.seat, Timeline { posts })
    }
}

/// Who follows whom.
pub(super) struct Followers;

impl HandleGraph for Followers {
    async fn followers(&self, request: User) -> Result<Users, Status> {
        if request.user >= USER_COUNT {
            return Err(Status::not_found(format!("there is no user {}", request.user)));
        }
        Ok(Users { users: followers_of(request.user) })
    }
}

fn followers_of(user: u32) -> Vec<u32> {
    if user < POPULAR_COUNT {
        return (0..USER_COUNT).filter(|other| *other != user).collect();
    }
    (1..=FOLLOWER_COUNT).map(|step| (user + step) % USER_COUNT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_keep_the_newest_and_give_them_newest_first() {
        let lists = Lists::default();
        (1..=100).for_each(|post| lists.append(7, post));
        let newest = lists.newest(TimelineRequest { user: 7, count: 3 }).ids;
        assert_eq!(newest, [100, 99, 98]);
        let all = lists.newest(TimelineRequest { user: 7, count: 1000 }).ids;
        assert_eq!((all.len(), all.last()), (TIMELINE_LEN_MAX, Some(&69)));
        assert!(lists.newest(TimelineRequest { user: 8, count: 3 }).ids.is_empty());
    }

    #[test]
    fn the_popular_are_followed_by_all_and_the_others_by_a_few() {
        assert_eq!(followers_of(0).len() as u32, USER_COUNT - 1);
        let few = followers_of(USER_COUNT - 1);
        assert_eq!(few.len() as u32, FOLLOWER_COUNT);
        assert!(few.iter().all(|user| *user < USER_COUNT && *user != USER_COUNT - 1));
    }
}
