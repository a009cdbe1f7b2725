/* Many marked requests through gateways, and the provider that answers and counts them: one thread, keep-alive HTTP/1.1
 * over loopback.
 *
 * usage: marked_calls PROVIDER_PORT CONNECTIONS REQUESTS TOKENS KEY COUNTS_FILE PORT...
 *
 * With 0 CONNECTIONS it sends nothing and only provides, for marks of requests that others send.
 *
 * It sends a request for each mark from 0 to REQUESTS - 1, whose text is "mark:m<number>" and whose x-request-id is "m<number>". A connection goes on at the next PORT after
 * anything but a whole 200; a mark is never sent twice. After the last answer it prints "<seconds> <longest ms>"; the end
 * of standard input ends the provider and writes COUNTS_FILE: REQUESTS bytes with the calls of each mark, then REQUESTS
 * bytes with 1 for each mark whose whole answer arrived.
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
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN_MAX 65536
#define PATIENCE_NS 60000000000ull
#define PAUSE_NS 50000000ull
#define MOST_PORTS 8
enum { LISTENER, PROVIDED, CALLER };

typedef struct {
    int kind, fd, place, busy;
    long mark;
    uint64_t began, wake;
    size_t len;
    char in[IN_MAX];
} Conn;

static int epoll_fd, port_count, ports[MOST_PORTS], tokens, running;
static const char *key;
static long requests, next_mark;
static uint8_t *calls, *whole;
static uint64_t longest_ns;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void watch(Conn *c) {
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
}

/* Return the size of the whole message at the start of the buffer, 0 while it is not whole. Every message of either side
 * has a content-length. */
static size_t message_size(Conn *c, char **body) {
    c->in[c->len] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end) return 0;
    *body = end + 4;
    char *length = strcasestr(c->in, "\r\ncontent-length:");
    size_t size = (size_t)(end - c->in) + 4 + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    return c->len >= size ? size : 0;
}

static int receive(Conn *c) {
    ssize_t n = recv(c->fd, c->in + c->len, IN_MAX - 1 - c->len, 0);
    if (n <= 0) return n < 0 && errno == EAGAIN ? 0 : -1;
    c->len += (size_t)n;
    return 1;
}

/* The messages are far smaller than a socket's buffer, so a short write is the end of the connection. */
static int put(Conn *c, const char *data, int len) { return send(c->fd, data, (size_t)len, MSG_NOSIGNAL) == len; }

static void provide(Conn *c) {
    char *body, content[512], answer[1024];
    size_t size = 0;
    int alive = receive(c) >= 0;
    while (alive && (size = message_size(c, &body))) {
        char *mark = strstr(body, "mark:m");
        long number = mark ? atol(mark + 6) : -1;
        if (number >= 0 && number < requests && calls[number] < 255) calls[number]++;
        int n = snprintf(content, sizeof content,
                         "{\"id\":\"chatcmpl-mint\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"coin\",\"choices\":["
                         "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"word\"},\"finish_reason\":\"stop\"}],"
                         "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":%d,\"total_tokens\":%d}}",
                         tokens, tokens + 1);
        n = snprintf(answer, sizeof answer,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, content);
        alive = put(c, answer, n);
        memmove(c->in, c->in + size, c->len - size);
        c->len -= size;
    }
    if (!alive || c->len >= IN_MAX - 1) {
        close(c->fd);
        free(c);
    }
}

static void accept_all(Conn *listener) {
    for (int fd; (fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        Conn *c = calloc(1, sizeof *c);
        if (!c) abort();
        c->kind = PROVIDED;
        c->fd = fd;
        watch(c);
    }
}

static void hang_up(Conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void go_on_elsewhere(Conn *c) {
    hang_up(c);
    if (c->busy) running--;
    c->busy = 0;
    c->place = (c->place + 1) % port_count;
    c->wake = now_ns() + PAUSE_NS;
}

static void call(Conn *c) {
    char body[256], message[1024];
    c->mark = next_mark++;
    c->busy = 1;
    running++;
    c->len = 0;
    c->began = now_ns();
    if (c->fd < 0) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ports[c->place])};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        c->fd = socket(AF_INET, SOCK_STREAM, 0); /* over loopback it connects at once, or not at all */
        if (connect(c->fd, (struct sockaddr *)&at, sizeof at)) {
            go_on_elsewhere(c);
            return;
        }
        watch(c);
    }
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"mint/coin\",\"messages\":[{\"role\":\"user\",\"content\":\"mark:m%ld\"}],\"max_tokens\":%d}",
                     c->mark, tokens);
    n = snprintf(message, sizeof message,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                 "Authorization: Bearer %s\r\nx-request-id: m%ld\r\nContent-Length: %d\r\n\r\n%s",
                 key, c->mark, n, body);
    if (!put(c, message, n)) go_on_elsewhere(c);
}

static void take(Conn *c) {
    char *body;
    if (receive(c) < 0 || !c->busy) {
        if (c->busy)
            go_on_elsewhere(c);
        else
            hang_up(c); /* the gateway ended an idle connection */
        return;
    }
    if (!message_size(c, &body)) {
        if (c->len >= IN_MAX - 1) go_on_elsewhere(c);
        return;
    }
    uint64_t took = now_ns() - c->began;
    if (took > longest_ns) longest_ns = took;
    if (strncmp(c->in, "HTTP/1.1 200", 12)) {
        go_on_elsewhere(c);
        return;
    }
    whole[c->mark] = 1;
    c->busy = 0;
    running--;
    body[-2] = 0;
    if (strcasestr(c->in, "\r\nconnection: close")) hang_up(c);
}

static void handle(int timeout_ms) {
    struct epoll_event events[512];
    int n = epoll_wait(epoll_fd, events, 512, timeout_ms);
    for (int i = 0; i < n; i++) {
        Conn *c = events[i].data.ptr;
        if (!c) return; /* standard input */
        if (c->kind == LISTENER)
            accept_all(c);
        else if (c->kind == PROVIDED)
            provide(c); /* which may free it */
        else if (c->fd >= 0)
            take(c);
    }
}

/* Provide until standard input ends. */
static void provide_on(void) {
    char c = 0;
    struct epoll_event ev = {.events = EPOLLIN};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &ev);
    for (;;) {
        fd_set set;
        struct timeval none = {0, 0};
        FD_ZERO(&set);
        FD_SET(0, &set);
        if (select(1, &set, NULL, NULL, &none) > 0 && (read(0, &c, 1) <= 0)) break;
        handle(100);
    }
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, 0, &ev);
}

static void send_all(int count) {
    Conn *callers = calloc((size_t)count, sizeof *callers);
    if (!callers) abort();
    for (int i = 0; i < count; i++) {
        callers[i].kind = CALLER;
        callers[i].fd = -1;
        callers[i].place = i % port_count;
    }
    while (next_mark < requests || running) {
        uint64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            Conn *c = &callers[i];
            if (c->busy && now > c->began + PATIENCE_NS) go_on_elsewhere(c);
            if (!c->busy && now >= c->wake && next_mark < requests) call(c);
        }
        handle(10);
    }
    for (int i = 0; i < count; i++) hang_up(&callers[i]);
}

static void listen_on(int port) {
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Conn *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->kind = LISTENER;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(c->fd, (struct sockaddr *)&at, sizeof at) || listen(c->fd, 4096)) {
        perror("marked_calls: bind");
        exit(1);
    }
    watch(c);
}

int main(int argc, char **argv) {
    if (argc < 8 || argc > 7 + MOST_PORTS) {
        fprintf(stderr, "usage: marked_calls PROVIDER_PORT CONNECTIONS REQUESTS TOKENS KEY COUNTS_FILE PORT...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int connections = atoi(argv[2]);
    requests = atol(argv[3]);
    tokens = atoi(argv[4]);
    key = argv[5];
    for (int i = 7; i < argc; i++) ports[port_count++] = atoi(argv[i]);
    calls = calloc((size_t)requests, 2);
    if (!calls) abort();
    whole = calls + requests;
    epoll_fd = epoll_create1(0);
    listen_on(atoi(argv[1]));
    uint64_t began = now_ns();
    if (connections) send_all(connections);
    printf("%.3f %llu\n", (double)(now_ns() - began) / 1e9, (unsigned long long)(longest_ns / 1000000));
    fflush(stdout);
    provide_on();
    FILE *file = fopen(argv[6], "wb");
    if (!file || fwrite(calls, 2, (size_t)requests, file) != (size_t)requests || fclose(file)) {
        perror(argv[6]);
        return 1;
    }
    return 0;
}
