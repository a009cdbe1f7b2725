/* An upstream that costs next to nothing: OpenAI chat completions on three ports.
 *
 * usage: mock PORT      PORT answers 200, PORT+1 always 500, PORT+2 always 429.
 *
 * A request's body may carry markers anywhere: gap=MS between chunks of a stream, think=MS before the answer,
 * count=N chunks (default 50). A stream is count chunks, then the finish chunk, the usage chunk and [DONE], a write
 * each. The content of each chunk is "t<CLOCK_MONOTONIC in ns> ", so a reader on the same host knows its age.
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

#define MAX_FD 16384
#define IN_MAX (256 * 1024)
#define LISTENERS 3

typedef struct {
    char *in;          /* the request as far as it came */
    size_t in_len;
    char *out;         /* what the socket did not take at once */
    size_t out_len, out_cap;
    uint64_t due;      /* when the next piece goes out, 0 = nothing waits */
    int port_index, streaming, step, count, gap;
} Conn;

static Conn *conns[MAX_FD];
static int epoll_fd, max_fd;

static const char REPLY[] =
    "{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"gpt-4o-mini\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello! This is a fixed answer of "
    "the benchmark's upstream; its length is that of a short paragraph, so that parsing it costs what parsing a "
    "usual short answer costs.\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":32,\"total_tokens\":51,"
    "\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},"
    "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,"
    "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}},"
    "\"service_tier\":\"default\",\"system_fingerprint\":\"fp_mock\"}";
static const char ERROR_500[] = "{\"error\":{\"message\":\"mock failure\",\"type\":\"server_error\",\"param\":null,"
                                "\"code\":null}}";
static const char ERROR_429[] = "{\"error\":{\"message\":\"mock rate limit\",\"type\":\"requests\",\"param\":null,"
                                "\"code\":\"rate_limit_exceeded\"}}";

#define CHUNK_HEAD "data: {\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion.chunk\",\"created\":1700000000," \
                   "\"model\":\"gpt-4o-mini\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_mock\","

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void drop(int fd) {
    Conn *c = conns[fd];
    if (c) {
        free(c->in);
        free(c->out);
        free(c);
        conns[fd] = NULL;
    }
    close(fd);
}

static void watch(int fd, int writable) {
    struct epoll_event ev = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

/* Send, keeping what the socket does not take. Returns -1 when the peer is gone. */
static int put(int fd, const char *data, size_t len) {
    Conn *c = conns[fd];
    if (!c->out_len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return -1;
        if (n > 0) data += n, len -= (size_t)n;
        if (!len) return 0;
        watch(fd, 1);
    }
    if (c->out_len + len > c->out_cap) {
        c->out_cap = (c->out_len + len) * 2;
        c->out = realloc(c->out, c->out_cap);
        if (!c->out) abort();
    }
    memcpy(c->out + c->out_len, data, len);
    c->out_len += len;
    return 0;
}

static int flush(int fd) {
    Conn *c = conns[fd];
    ssize_t n = send(fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN ? 0 : -1;
    memmove(c->out, c->out + n, c->out_len - (size_t)n);
    c->out_len -= (size_t)n;
    if (!c->out_len) watch(fd, 0);
    return 0;
}

static int put_whole(int fd, const char *status, const char *extra, const char *body) {
    char buffer[2048];
    int n = snprintf(buffer, sizeof buffer,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s", status, extra,
                     strlen(body), body);
    return put(fd, buffer, (size_t)n);
}

static int put_event(int fd, const char *event, int n) {
    char frame[1024];
    int len = snprintf(frame, sizeof frame, "%x\r\n%.*s\r\n", n, n, event);
    return put(fd, frame, (size_t)len);
}

/* One write of a stream: step 0 … count-1 chunks, then finish, usage, [DONE]. Returns 1 after the last. */
static int put_step(int fd) {
    Conn *c = conns[fd];
    char event[900];
    int n, step = c->step++ - c->count;
    if (step < 0) {
        n = snprintf(event, sizeof event,
                     CHUNK_HEAD "\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\"t%llu \"},\"logprobs\":null,"
                                "\"finish_reason\":null}],\"usage\":null}\n\n",
                     c->step == 1 ? "\"role\":\"assistant\"," : "", (unsigned long long)now_ns());
    } else if (step == 0) {
        n = snprintf(event, sizeof event, CHUNK_HEAD "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,"
                                                     "\"finish_reason\":\"stop\"}],\"usage\":null}\n\n");
    } else if (step == 1) {
        n = snprintf(event, sizeof event, CHUNK_HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":19,"
                                                     "\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
                     c->count, c->count + 19);
    } else {
        static const char last[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        return put(fd, last, sizeof last - 1) < 0 ? -1 : 1;
    }
    return put_event(fd, event, n);
}

/* Send what is due; sets when to come back. Returns -1 when the peer is gone. */
static int advance(int fd) {
    Conn *c = conns[fd];
    c->due = 0;
    if (c->port_index == 1) return put_whole(fd, "500 Internal Server Error", "", ERROR_500);
    if (c->port_index == 2) return put_whole(fd, "429 Too Many Requests", "Retry-After: 1\r\n", ERROR_429);
    if (!c->streaming) return put_whole(fd, "200 OK", "", REPLY);
    if (c->step == 0) {
        static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                   "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
        if (put(fd, head, sizeof head - 1) < 0) return -1;
    }
    for (;;) {
        int done = put_step(fd);
        if (done) return done < 0 ? -1 : 0;
        if (c->gap && c->step < c->count) {
            c->due = now_ns() + (uint64_t)c->gap * 1000000ull;
            return 0;
        }
    }
}

static int marker(const char *body, size_t len, const char *name, int fallback) {
    const char *at = memmem(body, len, name, strlen(name));
    return at ? atoi(at + strlen(name)) : fallback;
}

/* The size of the request at the start of the buffer, 0 when it is not whole yet. */
static size_t request_size(Conn *c, size_t *head_len) {
    char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (!end) return 0;
    *head_len = (size_t)(end - c->in) + 4;
    size_t body = 0;
    for (char *line = c->in; line < end; line++) {
        line = memchr(line, '\n', (size_t)(end - line) + 2);
        if (!line || line >= end) break;
        if (!strncasecmp(line + 1, "content-length:", 15)) body = strtoul(line + 16, NULL, 10);
    }
    return c->in_len >= *head_len + body ? *head_len + body : 0;
}

static int answer(int fd) {
    Conn *c = conns[fd];
    size_t head = 0, size = request_size(c, &head);
    if (!size) return c->in_len >= IN_MAX - 1 ? -1 : 0;
    const char *body = c->in + head;
    size_t len = size - head;
    c->streaming = memmem(body, len, "\"stream\":true", 13) || memmem(body, len, "\"stream\": true", 14);
    c->count = marker(body, len, "count=", 50);
    c->gap = marker(body, len, "gap=", 0);
    c->step = 0;
    int think = marker(body, len, "think=", 0);
    memmove(c->in, c->in + size, c->in_len - size);
    c->in_len -= size;
    c->in[c->in_len] = 0;
    if (think) {
        c->due = now_ns() + (uint64_t)think * 1000000ull;
        return 0;
    }
    return advance(fd);
}

static int take(int fd) {
    Conn *c = conns[fd];
    ssize_t n = recv(fd, c->in + c->in_len, IN_MAX - 1 - c->in_len, 0);
    if (n <= 0) return n < 0 && errno == EAGAIN ? 0 : -1;
    c->in_len += (size_t)n;
    c->in[c->in_len] = 0;
    return c->due ? 0 : answer(fd);
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096)) {
        perror("mock: bind");
        exit(1);
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    return fd;
}

static void accept_all(int listener, int port_index) {
    for (;;) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        if (fd >= MAX_FD) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Conn *c = calloc(1, sizeof *c);
        if (!c || !(c->in = malloc(IN_MAX))) abort();
        c->port_index = port_index;
        conns[fd] = c;
        if (fd > max_fd) max_fd = fd;
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    }
}

/* Send what is due and return the milliseconds until the next is, -1 for never. */
static int run_timers(void) {
    uint64_t now = now_ns(), next = 0;
    for (int fd = 0; fd <= max_fd; fd++) {
        Conn *c = conns[fd];
        if (!c || !c->due) continue;
        if (c->due <= now && advance(fd) < 0) {
            drop(fd);
            continue;
        }
        if (c->due && (!next || c->due < next)) next = c->due;
    }
    if (!next) return -1;
    return next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: mock PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(0);
    int listeners[LISTENERS];
    for (int i = 0; i < LISTENERS; i++) listeners[i] = listen_on(atoi(argv[1]) + i);
    struct epoll_event events[512];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 512, run_timers());
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd, port_index = -1;
            for (int k = 0; k < LISTENERS; k++)
                if (listeners[k] == fd) port_index = k;
            if (port_index >= 0) {
                accept_all(fd, port_index);
                continue;
            }
            if (!conns[fd]) continue;
            int bad = (events[i].events & EPOLLOUT) && flush(fd) < 0;
            if (!bad && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) bad = take(fd) < 0;
            if (bad) drop(fd);
        }
    }
}
