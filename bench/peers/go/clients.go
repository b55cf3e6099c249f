package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var background = context.Background()

// A client of rueidis with its default settings; the request may set only its flush delay.
type rueidisClient struct{ rueidis.Client }

func connectRueidis(asked loadRequest) (client, error) {
	connected, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{asked.addr}, MaxFlushDelay: asked.delay})
	return rueidisClient{connected}, err
}

func (c rueidisClient) publish(channel, message string) error {
	return c.Do(background, c.B().Publish().Channel(channel).Message(message).Build()).Error()
}

func (c rueidisClient) get(key string) (string, error) {
	return c.Do(background, c.B().Get().Key(key).Build()).ToString()
}

func (c rueidisClient) set(key, value string) error {
	return c.Do(background, c.B().Set().Key(key).Value(value).Build()).Error()
}

func (c rueidisClient) close() { c.Close() }

// A client of go-redis: the blocking calls of its AutoPipeline, with the default settings.
type goRedisClient struct {
	client    *redis.Client
	pipelined *redis.AutoPipeliner
}

func connectGoRedis(asked loadRequest) (client, error) {
	if asked.delay != 0 {
		return nil, errors.New("delay_us is not supported by go-redis")
	}
	connected := redis.NewClient(&redis.Options{Addr: asked.addr})
	pipelined, err := connected.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, connected.Close())
	}
	return goRedisClient{connected, pipelined}, nil
}

func (c goRedisClient) publish(channel, message string) error {
	return c.pipelined.Publish(background, channel, message).Err()
}

func (c goRedisClient) get(key string) (string, error) {
	return c.pipelined.Get(background, key).Result()
}

func (c goRedisClient) set(key, value string) error {
	return c.pipelined.Set(background, key, value, 0).Err()
}

func (c goRedisClient) close() { _ = c.client.Close() }
