/* A load generator that costs next to nothing: keep-alive HTTP/1.1 over loopback, one thread.
 *
 * usage: load PORT REQUEST_FILE CONNECTIONS SECONDS RATE THINK_MS STREAM
 *
 * REQUEST_FILE holds the bytes of one request. RATE 0 is a closed loop: each connection sends anew THINK_MS after
 * its answer. Any other RATE is an open loop of so many starts a second over at most CONNECTIONS sockets, timed
 * from the scheduled start, so that a slow server cannot hide its queue. Only a status 200 with a whole body is
 * good; with STREAM 1 it must also hold "data: [DONE]". Prints one line of JSON, times in microseconds; `delay` is
 * the age of the mock's stamps ("content":"t<ns>) on arrival.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define USER "x-llmgateway-user: u"
#define USERS 10000
#define USER_DIGITS 5
#define DRAIN_NS 5000000000ull
enum { IDLE, CONNECTING, WAITING };
enum { HEAD, FIXED, UNTIL_CLOSE, SIZE_LINE, DATA, DATA_END, TRAILER };

typedef struct {
    int fd, state, fresh;
    uint64_t start, wake; /* scheduled start of the request; when a thinking client goes on */
    int first_seen;
    size_t sent;
    char head[HEAD_MAX]; /* the head of the answer, then unused */
    size_t head_len;
    int part, ok, line_len, tail_len, done_seen;
    uint64_t left;
    char tail[16]; /* last bytes, to find [DONE] across receives */
} Conn;

typedef struct {
    uint32_t *items;
    size_t len, cap;
} Samples;

static int epoll_fd, streams, think_ms, conn_count;
static uint16_t port;
static char *request, *user;
static uint64_t user_seed;
static size_t request_len;
static Conn *conns;
static Samples whole, first, delay;
static uint64_t good, errors, in_window, end_at;
static int running;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void add(Samples *s, uint64_t ns) {
    if (s->len == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 65536;
        s->items = realloc(s->items, s->cap * sizeof *s->items);
        if (!s->items) abort();
    }
    s->items[s->len++] = (uint32_t)(ns / 1000);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, Samples *s) {
    qsort(s->items, s->len, sizeof *s->items, ascending);
    uint32_t at[3] = {0, 0, 0};
    const double share[3] = {0.5, 0.9, 0.99};
    for (int i = 0; i < 3 && s->len; i++) at[i] = s->items[(size_t)((double)(s->len - 1) * share[i])];
    printf(",\"%s\":{\"count\":%zu,\"p50\":%u,\"p90\":%u,\"p99\":%u}", name, s->len, at[0], at[1], at[2]);
}

static void disconnect(Conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void idle(Conn *c) {
    c->state = IDLE;
    c->wake = think_ms ? now_ns() + (uint64_t)think_ms * 1000000ull : 0;
    running--;
}

static void fail(Conn *c) {
    errors++;
    disconnect(c);
    idle(c);
    /* A dead server must not turn the loop into a storm of connects. */
    if (!c->wake) c->wake = now_ns() + 10000000ull;
}

static void push(Conn *c) {
    if (user && !c->sent) { /* one of many end users */
        user_seed = user_seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t digits = (uint32_t)(user_seed >> 33) % USERS;
        for (int at = USER_DIGITS; at--; digits /= 10) user[at] = (char)('0' + digits % 10);
    }
    while (c->sent < request_len) {
        ssize_t n = send(c->fd, request + c->sent, request_len - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) fail(c);
            return;
        }
        c->sent += (size_t)n;
    }
}

static void connect_now(Conn *c) {
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
    c->fresh = 1;
    if (connect(c->fd, (struct sockaddr *)&at, sizeof at) && errno != EINPROGRESS)
        fail(c);
    else
        c->state = CONNECTING;
}

static void reset(Conn *c) {
    c->sent = c->head_len = 0;
    c->part = HEAD;
    c->ok = c->first_seen = c->line_len = c->tail_len = c->done_seen = 0;
    c->left = 0;
}

static void begin(Conn *c, uint64_t scheduled) {
    running++;
    c->start = scheduled;
    reset(c);
    if (c->fd < 0) {
        connect_now(c);
        return;
    }
    c->state = WAITING;
    c->fresh = 0;
    push(c);
}

static void finish(Conn *c) {
    uint64_t now = now_ns();
    if (c->ok && (!streams || c->done_seen)) {
        good++;
        if (now <= end_at) in_window++;
        add(&whole, now - c->start);
        if (c->part == UNTIL_CLOSE || strcasestr(c->head, "connection: close")) disconnect(c);
        idle(c);
    } else {
        fail(c);
    }
}

/* Ages of the mock's stamps, and whether [DONE] is among the last bytes. */
static void scan(Conn *c, const char *data, size_t len) {
    static const char mark[] = "\"content\":\"t", last[] = "data: [DONE]";
    uint64_t now = now_ns();
    const char *at = data, *end = data + len;
    while ((at = memmem(at, (size_t)(end - at), mark, sizeof mark - 1))) {
        at += sizeof mark - 1;
        uint64_t stamp = 0;
        while (at < end && *at >= '0' && *at <= '9') stamp = stamp * 10 + (uint64_t)(*at++ - '0');
        /* A stamp cut by the end of the receive would read as a far too old one. */
        if (at < end && stamp && stamp <= now) add(&delay, now - stamp);
    }
    char joint[sizeof c->tail + 32];
    size_t before = (size_t)c->tail_len, fresh = len < 32 ? len : 32;
    memcpy(joint, c->tail, before);
    memcpy(joint + before, data, fresh);
    if (memmem(data, len, last, sizeof last - 1) || memmem(joint, before + fresh, last, sizeof last - 1)) c->done_seen = 1;
    size_t keep = len < sizeof c->tail ? len : sizeof c->tail;
    memcpy(c->tail, data + len - keep, keep);
    c->tail_len = (int)keep;
}

/* Read the head; returns how many of the bytes belonged to it, 0 when it goes on, -1 when it is bad. */
static ssize_t read_head(Conn *c, const char *data, size_t len) {
    size_t before = c->head_len, room = HEAD_MAX - 1 - before, n = len < room ? len : room;
    memcpy(c->head + before, data, n);
    c->head_len += n;
    c->head[c->head_len] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return c->head_len >= HEAD_MAX - 1 ? -1 : 0;
    size_t used = (size_t)(end - c->head) + 4 - before;
    end[2] = 0;
    c->ok = !strncmp(c->head, "HTTP/1.1 200", 12);
    char *length = strcasestr(c->head, "\r\ncontent-length:");
    if (strcasestr(c->head, "\r\ntransfer-encoding: chunked")) {
        c->part = SIZE_LINE;
    } else if (length) {
        c->part = FIXED;
        c->left = strtoull(length + 17, NULL, 10);
    } else {
        c->part = UNTIL_CLOSE;
    }
    return (ssize_t)used;
}

/* Walk chunked framing. Returns 1 at the end of the answer, 0 when it goes on, -1 when it is bad. */
static int walk_chunks(Conn *c, const char *data, size_t len) {
    for (size_t i = 0; i < len;) {
        if (c->part == DATA) {
            uint64_t n = len - i < c->left ? len - i : c->left;
            i += n;
            c->left -= n;
            if (!c->left) c->part = DATA_END;
            continue;
        }
        char b = data[i++];
        if (b == '\r') continue;
        if (c->part == DATA_END) {
            if (b != '\n') return -1;
            c->part = SIZE_LINE;
            c->left = 0;
            c->line_len = 0;
        } else if (c->part == SIZE_LINE && b != '\n') {
            int digit = b >= '0' && b <= '9' ? b - '0' : (b | 32) >= 'a' && (b | 32) <= 'f' ? (b | 32) - 'a' + 10 : -1;
            if (digit < 0 || ++c->line_len > 8) return -1;
            c->left = c->left * 16 + (uint64_t)digit;
        } else if (c->part == SIZE_LINE) {
            if (!c->line_len) return -1;
            c->part = c->left ? DATA : TRAILER;
            c->line_len = 0;
        } else if (b == '\n') {
            if (!c->line_len) return i == len ? 1 : -1;
            c->line_len = 0;
        } else {
            c->line_len++;
        }
    }
    return 0;
}

static void digest(Conn *c, const char *data, size_t len) {
    if (!c->first_seen) {
        c->first_seen = 1;
        add(&first, now_ns() - c->start);
    }
    if (c->part == HEAD) {
        ssize_t used = read_head(c, data, len);
        if (used < 0) {
            fail(c);
            return;
        }
        if (!used) return;
        data += used;
        len -= (size_t)used;
    }
    if (streams && len) scan(c, data, len);
    int state = 0;
    if (c->part == FIXED) {
        state = len > c->left ? -1 : len == c->left;
        c->left -= len;
    } else if (c->part != UNTIL_CLOSE) {
        state = walk_chunks(c, data, len);
    }
    if (state > 0) finish(c);
    if (state < 0) fail(c);
}

static void take(Conn *c) {
    static char buffer[262144];
    while (c->fd >= 0) {
        ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (c->state == IDLE) { /* an idle server connection that ended is no error */
            disconnect(c);
            return;
        }
        if (n <= 0) {
            if (n == 0 && c->part == UNTIL_CLOSE) {
                finish(c);
            } else if (!c->fresh && !c->first_seen) {
                disconnect(c); /* closed while the request was under way: send it anew, its clock runs on */
                running--;
                begin(c, c->start);
            } else {
                fail(c);
            }
            return;
        }
        digest(c, buffer, (size_t)n);
    }
}

static void on_event(Conn *c, uint32_t events) {
    if (c->state == CONNECTING && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        int problem = 0;
        socklen_t size = sizeof problem;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &problem, &size);
        if (problem) {
            fail(c);
            return;
        }
        c->state = WAITING;
    }
    if (c->state == WAITING && (events & EPOLLOUT) && c->sent < request_len) push(c);
    if (c->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) take(c);
}

/* Start what is due; returns the milliseconds until something is, -1 for never. */
static int start_due(uint64_t begin_at, double rate, uint64_t *issued) {
    uint64_t now = now_ns(), next = 0;
    if (now >= end_at) return 10;
    int from = 0;
    for (; rate > 0;) {
        uint64_t due = begin_at + (uint64_t)((double)*issued / rate * 1e9);
        if (due > now) {
            next = due;
            break;
        }
        while (from < conn_count && (conns[from].state != IDLE || conns[from].wake > now)) from++;
        if (from == conn_count) return 1;
        begin(&conns[from], due);
        ++*issued;
    }
    for (int i = 0; rate <= 0 && i < conn_count; i++) {
        Conn *c = &conns[i];
        if (c->state != IDLE) continue;
        if (c->wake <= now)
            begin(c, now);
        else if (!next || c->wake < next)
            next = c->wake;
    }
    if (!next) return 10;
    return (int)((next - now) / 1000000);
}

static void read_request(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    request = malloc((1 << 20) + 1);
    request_len = fread(request, 1, 1 << 20, file);
    fclose(file);
    request[request_len] = 0;
    user = strstr(request, USER);
    if (user) user += strlen(USER);
    user_seed = now_ns();
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: load PORT REQUEST_FILE CONNECTIONS SECONDS RATE THINK_MS STREAM\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    port = (uint16_t)atoi(argv[1]);
    read_request(argv[2]);
    conn_count = atoi(argv[3]);
    double seconds = atof(argv[4]), rate = atof(argv[5]);
    think_ms = rate > 0 ? 0 : atoi(argv[6]);
    streams = atoi(argv[7]);
    epoll_fd = epoll_create1(0);
    conns = calloc((size_t)conn_count, sizeof *conns);
    if (!conns) abort();
    uint64_t begin_at = now_ns(), issued = 0;
    end_at = begin_at + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < conn_count; i++) {
        conns[i].fd = -1;
        /* Clients start apart, over one thinking time or 0.2 ms each: a herd would stay one, chunk by chunk. */
        uint64_t spread = think_ms ? (uint64_t)think_ms * 1000000ull : 200000ull * (uint64_t)conn_count;
        conns[i].wake = begin_at + (rate > 0 ? 0 : spread * (uint64_t)i / (uint64_t)conn_count);
    }
    struct epoll_event events[512];
    while (now_ns() < end_at || (running && now_ns() < end_at + DRAIN_NS)) {
        int n = epoll_wait(epoll_fd, events, 512, start_due(begin_at, rate, &issued));
        for (int i = 0; i < n; i++) on_event(events[i].data.ptr, events[i].events);
    }
    errors += (uint64_t)running;
    printf("{\"good\":%llu,\"errors\":%llu,\"seconds\":%.3f,\"rps\":%.1f", (unsigned long long)good,
           (unsigned long long)errors, seconds, (double)in_window / seconds);
    print_samples("whole", &whole);
    print_samples("first", &first);
    print_samples("delay", &delay);
    printf("}\n");
    return 0;
}
