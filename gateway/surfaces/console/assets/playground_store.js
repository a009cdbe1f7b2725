// Conversations of the playground in the storage of the browser: the server keeps none of them. Each person who signs in
// with this browser has a separate store.
"use strict";

class ConversationStore {
  static MOST = 100;  // conversations; the oldest are deleted

  constructor(user) {
    this.name = `playground ${user}`;
    this.opened = null;
  }

  open() {
    this.opened ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("conversations", {keyPath: "id"});
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    return this.opened;
  }

  async run(mode, work) {
    const database = await this.open();
    return new Promise((resolve, reject) => {
      const transaction = database.transaction("conversations", mode);
      const request = work(transaction.objectStore("conversations"));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  }

  async save(conversation) {
    await this.run("readwrite", (store) => store.put(conversation));
    const all = await this.list();
    for (const old of all.slice(ConversationStore.MOST)) await this.remove(old.id);
  }

  find(id) {
    return this.run("readonly", (store) => store.get(id));
  }

  // The newest first.
  async list() {
    const all = await this.run("readonly", (store) => store.getAll());
    return all.sort((one, other) => other.at - one.at);
  }

  remove(id) {
    return this.run("readwrite", (store) => store.delete(id));
  }

  clear() {
    return this.run("readwrite", (store) => store.clear());
  }
}
